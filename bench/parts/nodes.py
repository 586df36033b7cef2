# SPDX-License-Identifier: Apache-2.0
"""Part e: what more nodes cost. A group on 1, 4, 16 and 64 nodes, a process on each; devices of no cost, of 500 ms.

The floor beside it has as many agents, in as many processes, on the same cores: what it takes, no logic can spare.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bench.figures import MS, Check, Found, Row, timed
from bench.fleet import Fleet
from bench.floor.script import Wide
from bench.measure import Case, Sample, Summary, interleave, noise, summarise
from bench.parts import floor, handoff
from bench.settings import Settings
from bench.system import Bench, Contender, Pair
from bench.usage import Usage

_COST = 0.5
_LIMIT = 1.15
_IDLE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class _Kind:
    """A group of this part. Its name is that of its row."""

    size: int
    cost: float
    again: bool = False

    @property
    def name(self) -> str:
        nodes = f"{self.size} {'node' if self.size == 1 else 'nodes'}"
        return f"hand-off, {nodes}, devices {self.cost * MS:g} ms{' (again)' if self.again else ''}"

    @property
    def floor(self) -> str:
        return f"floor: {self.name}"

    @property
    def beside(self) -> _Kind:
        """The same on one node."""
        return _Kind(1, self.cost)


@dataclass(slots=True)
class _Meter:
    """Processor time of a system or of its floor.

    Attributes:
        idle: seconds of it a second while nothing happens.
        used: of each hand-off, by the row's name; what it takes at rest is not in it.
    """

    usage: Callable[[], Usage]
    idle: float = 0.0
    used: dict[str, list[float]] = field(default_factory=dict)

    def case(self, name: str, pair: Pair) -> Case:
        def take() -> Sample:
            before = self.usage()
            sample = pair.hand_off()
            after = self.usage()
            used = sum(after.since(before).values()) - self.idle * (after.at - before.at)
            self.used.setdefault(name, []).append(max(used, 0.0))
            return sample

        return Case(name, take)


def run(bench: Bench, settings: Settings) -> Found:
    """All sizes in one system, interleaved; each has devices of its own on the nodes that it shares with the others."""
    script = handoff.observe(bench)
    with contextlib.ExitStack() as stack:
        sizes = sorted({1, *settings.nodes})
        kinds = [_Kind(size, cost) for cost in (0.0, _COST) for size in sizes]
        kinds.append(_Kind(1, _COST, again=True))
        many, processes = sizes[-1], min(settings.agent_processes, sizes[-1])
        fleet = Fleet(bench, stack, "e", nodes=many, processes=processes, devices=len(kinds))
        pairs: list[Pair] = []
        wide: dict[str, Wide] = {}
        for number, kind in enumerate(kinds):
            group = f"e{number}"
            pairs.append(_pair(bench, stack, fleet, group, number, kind))
            wide[group] = _seen(bench, fleet, group, kind, pairs[-1])
        script = replace(script, wide=wide)
        below = floor.start(bench, stack, script, nodes=many, processes=processes, devices=False)
        floor_pairs = [_jobs(bench, stack, "bench.floor.job", below.endpoint, group) for group in wide]
        system, ground = _Meter(fleet.usage), _Meter(below.usage)
        _rest(system, ground)
        cases = [system.case(kind.name, pair) for kind, pair in zip(kinds, pairs, strict=True)]
        cases += [
            ground.case(kind.floor, pair) for kind, pair in zip(kinds, floor_pairs, strict=True) if not kind.again
        ]
        taken = interleave(cases, settings.node_rounds, warm_up=1, rng=random.Random(settings.seed))
    found = {name: summarise(samples) for name, samples in taken.items()}
    note = (
        f"{many} agents as tasks of {processes} processes, journals in memory; between switches the whole system took "
        f"{system.idle / many * MS:.2f} ms of CPU a node and second, not counted in cpu_ms_node"
    )
    rows = _rows(found, {**system.used, **ground.used}, kinds)
    return Found(tuple(rows), tuple(_checks(found, kinds)), (note, _told(found, _Kind(many, _COST))))


def _jobs(bench: Bench, stack: contextlib.ExitStack, module: str, endpoint: str, group: str) -> Pair:
    jobs = [Contender(bench, stack, module, endpoint, group, f"{group}-{side}") for side in ("a", "b")]
    return Pair(bench.store, *jobs)


def _pair(bench: Bench, stack: contextlib.ExitStack, fleet: Fleet, group: str, number: int, kind: _Kind) -> Pair:
    """Two jobs, each with a process on device ``number`` of each of the first nodes."""
    nodes = fleet.nodes[: kind.size]
    fleet.put_groups({group: [(node, number) for node in nodes]})
    pair = _jobs(bench, stack, "bench.job", fleet.endpoints[0], group)
    for _ in range(2):
        fleet.attach(group, pair.holder, number, kind.cost, nodes)
        pair.hand_off()
    return pair


def _seen(bench: Bench, fleet: Fleet, group: str, kind: _Kind, pair: Pair) -> Wide:
    """What a hand-off of the group writes, for the floor."""
    names = {group: "{group}", fleet.nodes[0]: "{node}", pair.holder: "{out}", pair.other: "{in}"}
    _, *steps = handoff.steps(bench, fleet.prefix, pair.hand_off, names, moves=True)
    return Wide(tuple(fleet.nodes[: kind.size]), kind.cost / 2, tuple(steps))


def _rest(*meters: _Meter) -> None:
    """What each takes while nothing happens: that is what is measured."""
    before = [meter.usage() for meter in meters]
    time.sleep(_IDLE_SECONDS)
    for meter, first in zip(meters, before, strict=True):
        last = meter.usage()
        meter.idle = sum(last.since(first).values()) / (last.at - first.at)


def _rows(found: Mapping[str, Summary], cpu: Mapping[str, list[float]], kinds: Sequence[_Kind]) -> Iterator[Row]:
    for kind in kinds:
        summary, floor_of = found[kind.name], found[replace(kind, again=False).floor]
        ratios = {"x_one_node": summary.p50 / found[kind.beside.name].p50, "x_floor": summary.p50 / floor_of.p50}
        yield _with_cpu(timed("e", kind.name, summary, **ratios), kind, cpu[kind.name])
    for kind in kinds:
        if not kind.again:
            summary = found[kind.floor]
            row = timed("e", kind.floor, summary, x_one_node=summary.p50 / found[kind.beside.floor].p50, x_floor=1.0)
            yield _with_cpu(row, kind, cpu[kind.floor])
    free = [kind for kind in kinds if not kind.cost]
    for what, names in (("", [kind.name for kind in free]), ("floor: ", [kind.floor for kind in free])):
        slope = (found[names[-1]].p50 - found[names[0]].p50) / max(free[-1].size - 1, 1) * MS
        yield Row("e", f"{what}slope at no device cost", {"ms_node": slope})


def _with_cpu(row: Row, kind: _Kind, used: Sequence[float]) -> Row:
    middle = summarise([Sample(value) for value in used]).p50
    return replace(row, figures={**row.figures, "cpu_ms_node": middle / kind.size * MS})


def _told(found: Mapping[str, Summary], kind: _Kind) -> str:
    system, ground = (found[name].p50 / found[one].p50 for name, one in _names(kind))
    of_floor = found[kind.name].p50 / found[kind.floor].p50
    return (
        f"{kind.size} nodes at {kind.cost * MS:g} ms: the system {system:.2f} of one node's time, the floor "
        f"{ground:.2f} of its own; the system {of_floor:.2f} of the floor's"
    )


def _names(kind: _Kind) -> tuple[tuple[str, str], tuple[str, str]]:
    """The system's row and that of one node; the floor's."""
    return (kind.name, kind.beside.name), (kind.floor, kind.beside.floor)


def _checks(found: Mapping[str, Summary], kinds: Sequence[_Kind]) -> Iterator[Check]:
    many = max(kinds, key=lambda kind: (kind.cost, kind.size))
    one = many.beside
    ratio = found[many.name].p50 / found[one.name].p50
    yield Check("e", f"{many.size} nodes beside 1 at {_COST * MS:g} ms", ratio, _LIMIT)
    same = max(abs((found[one.name].revisions or 0) - (found[one.floor].revisions or 0)) for one in kinds[:-1])
    yield Check("e", "revisions more or less than the floor's", same, 0)
    again = found[replace(one, again=True).name]
    yield Check("e", "two of the same are apart by", noise(found[one.name], again), 0.05)
