# SPDX-License-Identifier: Apache-2.0
"""Part e: what more nodes cost. A group on 1, 4, 16 and 64 nodes, a process on each; devices of no cost, of 500 ms."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Mapping

from bench.figures import MS, Check, Found, Row, timed
from bench.fleet import Fleet
from bench.measure import Case, Sample, Summary, interleave, noise, summarise
from bench.settings import Settings
from bench.system import Bench, Contender, Pair

_COST = 0.5
_LIMIT = 1.15
_IDLE_SECONDS = 3.0


def run(bench: Bench, settings: Settings) -> Found:
    """All sizes in one system, interleaved; each has devices of its own on the nodes that it shares with the others."""
    with contextlib.ExitStack() as stack:
        sizes = sorted(settings.nodes)
        processes = settings.agent_processes
        fleet = Fleet(bench, stack, "e", nodes=sizes[-1], processes=processes, devices=2 * len(sizes) + 1)
        before = fleet.usage()
        time.sleep(_IDLE_SECONDS)  # that is what is measured: nothing happens
        after = fleet.usage()
        idle = sum(after.since(before).values()) / (after.at - before.at)
        cpu: dict[str, list[float]] = {}
        cases: list[Case] = []
        wanted = [(size, cost) for cost in (0.0, _COST) for size in sizes]
        for number, (size, cost) in enumerate(wanted):
            pair = _pair(bench, stack, fleet, f"e{number}", number, size, cost)
            cases.append(_case(_name(size, cost), pair, fleet, cpu, idle))
        again = _pair(bench, stack, fleet, "again", len(wanted), sizes[0], _COST)
        cases.append(_case(f"{_name(sizes[0], _COST)} (again)", again, fleet, cpu, idle))
        taken = interleave(cases, settings.node_rounds, warm_up=1, rng=random.Random(settings.seed))
    found = {name: summarise(samples) for name, samples in taken.items()}
    note = (
        f"{sizes[-1]} agents as tasks of {min(processes, sizes[-1])} processes, journals in memory; between switches "
        f"the whole system took {idle / sizes[-1] * MS:.2f} ms of CPU a node and second, not counted in cpu_ms_node"
    )
    return Found(tuple(_rows(found, cpu, sizes)), tuple(_checks(found, sizes)), (note,))


def _pair(
    bench: Bench, stack: contextlib.ExitStack, fleet: Fleet, group: str, number: int, size: int, cost: float
) -> Pair:
    """Two jobs, each with a process on device ``number`` of each of the first ``size`` nodes."""
    nodes = fleet.nodes[:size]
    fleet.put_groups({group: [(node, number) for node in nodes]})
    jobs = [Contender(bench, stack, "bench.job", fleet.endpoints[0], group, f"{group}-{side}") for side in ("a", "b")]
    pair = Pair(bench.store, *jobs)
    for _ in jobs:
        fleet.attach(group, pair.holder, number, cost, nodes)
        pair.hand_off()
    return pair


def _name(size: int, cost: float) -> str:
    return f"hand-off, {size} {'node' if size == 1 else 'nodes'}, devices {cost * MS:g} ms"


def _case(name: str, pair: Pair, fleet: Fleet, cpu: dict[str, list[float]], idle: float) -> Case:
    def take() -> Sample:
        before = fleet.usage()
        sample = pair.hand_off()
        after = fleet.usage()
        used = sum(after.since(before).values()) - idle * (after.at - before.at)
        cpu.setdefault(name, []).append(max(used, 0.0))
        return sample

    return Case(name, take)


def _rows(found: Mapping[str, Summary], cpu: Mapping[str, list[float]], sizes: list[int]) -> Iterator[Row]:
    for name, summary in found.items():
        cost = _COST if f"{_COST * MS:g} ms" in name else 0.0
        one = found[_name(sizes[0], cost)]
        row = timed("e", name, summary, x_one_node=summary.p50 / one.p50)
        size = int(name.split()[1])
        used = summarise([Sample(value) for value in cpu[name]]).p50
        yield Row(row.part, row.name, {**row.figures, "cpu_ms_node": used / size * MS})
    free = [found[_name(size, 0.0)].p50 for size in sizes]
    slope = (free[-1] - free[0]) / max(sizes[-1] - sizes[0], 1) * MS
    yield Row("e", "slope at no device cost", {"ms_node": slope})


def _checks(found: Mapping[str, Summary], sizes: list[int]) -> Iterator[Check]:
    one, many = found[_name(sizes[0], _COST)], found[_name(sizes[-1], _COST)]
    yield Check("e", f"{sizes[-1]} nodes beside {sizes[0]} at {_COST * MS:g} ms", many.p50 / one.p50, _LIMIT)
    again = found[f"{_name(sizes[0], _COST)} (again)"]
    yield Check("e", "two of the same are apart by", noise(one, again), 0.05)
