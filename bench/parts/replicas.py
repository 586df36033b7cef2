# SPDX-License-Identifier: Apache-2.0
"""Part h: what more replicas cost. A transaction that has lost a guard was wasted: the replicas' logs say so.

Etcd cannot tell, since several may go in one request (`ledger.etcd.batch`), of which it counts the requests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bench.figures import MS, Check, Found, Row
from bench.fleet import Fleet, Load
from bench.load import names
from bench.measure import percentile
from bench.settings import Settings
from bench.system import Bench
from bench.usage import requests

_GROUPS, _JOBS = 4, 4
_WASTE = 1.0
"""Transactions a hand-off that may be wasted with the most replicas."""


@dataclass(slots=True)
class _Tally:
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    wasted: int = 0
    requests: int = 0
    revisions: int = 0
    cpu: float = 0.0


def run(bench: Bench, settings: Settings) -> Found:
    """All numbers of replicas beside each other, with sessions spread over them; one at a time is loaded."""
    tallies = {count: _Tally() for count in settings.replicas}
    with contextlib.ExitStack() as stack:
        loads: dict[int, tuple[Fleet, Load]] = {}
        for count in settings.replicas:
            fleet = Fleet(bench, stack, f"h{count}", replicas=count, devices=_GROUPS)
            groups = names(0, _GROUPS)
            fleet.put_groups({group: [("n0", n)] for n, group in enumerate(groups)})
            load = Load(bench, stack, f"h{count}", fleet.endpoints, groups, jobs=_JOBS, channels=2 * count)
            load.open()
            loads[count] = (fleet, load)
        for _ in range(settings.windows):
            for count, (fleet, load) in loads.items():
                _window(bench, fleet, load, settings.window_seconds, tallies[count])
    return Found(tuple(_rows(tallies)), tuple(_checks(tallies)))


def _window(bench: Bench, fleet: Fleet, load: Load, seconds: float, tally: _Tally) -> None:
    member = bench.etcd.members[0]
    load.go()
    load.window(min(1.0, seconds / 4))
    before, revision, lost, usage = requests(member)["Txn"], bench.store.revision(), fleet.lost(), fleet.usage()
    window = load.window(seconds)
    tally.requests += requests(member)["Txn"] - before
    tally.revisions += bench.store.revision() - revision
    used = fleet.usage().since(usage)
    tally.cpu += sum(seconds for name, seconds in used.items() if name.startswith("replica"))
    tally.seconds += window.seconds
    tally.latencies += window.latencies
    load.rest()
    tally.wasted += fleet.lost() - lost


def _rows(tallies: Mapping[int, _Tally]) -> Iterator[Row]:
    for count, tally in tallies.items():
        done = len(tally.latencies)
        yield Row(
            "h",
            f"{count} {'replica' if count == 1 else 'replicas'}",
            {
                "wasted": _wasted(tally),
                "requests": tally.requests / done,
                "revisions": tally.revisions / done,
                "replicas_cpu_ms": tally.cpu / done * MS,
                "per_s": done / tally.seconds,
                "p50_ms": percentile(tally.latencies, 0.5) * MS,
                "p99_ms": percentile(tally.latencies, 0.99) * MS,
            },
        )


def _wasted(tally: _Tally) -> float:
    """For each hand-off."""
    return tally.wasted / len(tally.latencies)


def _checks(tallies: Mapping[int, _Tally]) -> Iterator[Check]:
    most = max(tallies)
    yield Check("h", f"{most} replicas: transactions wasted for each hand-off", _wasted(tallies[most]), _WASTE)
