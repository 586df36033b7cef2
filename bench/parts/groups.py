# SPDX-License-Identifier: Apache-2.0
"""Part f: what many groups do at once. Four jobs in each, all of which want turns all the time; the floor likewise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bench.figures import MS, Check, Found, Row
from bench.fleet import Fleet, Load
from bench.floor.script import Script
from bench.load import names
from bench.measure import TooShort, percentile
from bench.parts import floor, handoff
from bench.settings import Settings
from bench.system import Bench
from bench.usage import Usage

JOBS = 4
_GROUPS_OF_A_NODE = 8
_SHARE = 0.7
"""Of the floor's hand-offs a second that the system must reach with the most groups."""


@dataclass(slots=True)
class _Tally:
    """Several windows of one thing, added up."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    revisions: int = 0
    cpu: dict[str, float] = field(default_factory=dict)

    def add_cpu(self, used: Mapping[str, float]) -> None:
        """By what the processes are, whatever their numbers."""
        for name, seconds in used.items():
            kind = name.rstrip("0123456789")
            self.cpu[kind] = self.cpu.get(kind, 0.0) + seconds

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds


def run(bench: Bench, settings: Settings) -> Found:
    """See the module; the floor replays what a system was seen to write."""
    return measure(bench, settings, handoff.observe(bench))


def measure(bench: Bench, settings: Settings, script: Script) -> Found:
    """Each number of groups by itself, since the more would disturb the fewer; system and floor by turns."""
    tallies: dict[tuple[str, int], _Tally] = {}
    for count in settings.groups:
        nodes = -(-count // _GROUPS_OF_A_NODE)
        with contextlib.ExitStack() as stack:
            processes = settings.agent_processes
            fleet = Fleet(bench, stack, f"f{count}", nodes=nodes, processes=processes, devices=_GROUPS_OF_A_NODE)
            groups = names(0, count)
            places = {group: [(f"n{n % nodes}", n // nodes)] for n, group in enumerate(groups)}
            fleet.put_groups(places)
            below = floor.start(bench, stack, script, nodes=nodes, processes=processes, devices=False)
            loads = _loads(bench, stack, f"f{count}", fleet.endpoints, groups, settings)
            floor_loads = _loads(bench, stack, f"floor{count}", [below.endpoint], groups, settings)
            measured: list[tuple[str, Sequence[Load], Callable[[], Usage]]] = [
                ("system", loads, fleet.usage),
                ("floor", floor_loads, below.usage),
            ]
            for load in (*loads, *floor_loads):
                load.open()
            for _ in range(settings.windows):
                for name, who, usage in measured:
                    tally = tallies.setdefault((name, count), _Tally())
                    _window(bench, who, settings.window_seconds, usage, tally)
    return Found(tuple(_rows(tallies)), tuple(_checks(tallies)), (_NOTE,))


_NOTE = (
    f"{_GROUPS_OF_A_NODE} groups a node, agents as tasks of few processes, jobs without processes, devices asked in no "
    f"time; {JOBS} jobs a group, each a session and stream of its own, in few processes that do nothing else"
)


def _loads(
    bench: Bench, stack: contextlib.ExitStack, name: str, endpoints: Sequence[str], groups: Sequence[str], of: Settings
) -> list[Load]:
    count = min(of.load_processes, len(groups))
    return [Load(bench, stack, f"{name}-{n}", endpoints, groups[n::count], jobs=JOBS) for n in range(count)]


def _window(bench: Bench, loads: Sequence[Load], seconds: float, usage: Callable[[], Usage], tally: _Tally) -> None:
    """One stretch at full load, after it has got going."""
    for load in loads:
        load.go()
    for load in loads:
        load.window(min(1.0, seconds / 4))
    before, revision = usage(), bench.store.revision()
    for load in loads:
        load.begin_window(seconds)
    windows = [load.end_window(seconds) for load in loads]
    after = usage()
    tally.revisions += bench.store.revision() - revision
    tally.add_cpu(after.since(before))
    tally.seconds += max(window.seconds for window in windows)
    for window in windows:
        tally.latencies += window.latencies
    if not tally.latencies:
        raise TooShort(f"no hand-off came to its end within {seconds:g} s: measure for longer, by --window-seconds")
    for load in loads:
        load.rest()


def _rows(tallies: Mapping[tuple[str, int], _Tally]) -> Iterator[Row]:
    for (name, count), tally in sorted(tallies.items(), key=lambda one: (one[0][1], one[0][0] == "floor")):
        done = len(tally.latencies)
        figures = {
            "of_floor": tally.rate / tallies["floor", count].rate,
            "per_s": tally.rate,
            "p50_ms": percentile(tally.latencies, 0.5) * MS,
            "p99_ms": percentile(tally.latencies, 0.99) * MS,
            "revisions": tally.revisions / done,
        }
        figures |= {f"{kind}_cpu_ms": used / done * MS for kind, used in sorted(tally.cpu.items())}
        yield Row("f", f"{name}, {count} {'group' if count == 1 else 'groups'}", figures)


def _checks(tallies: Mapping[tuple[str, int], _Tally]) -> Iterator[Check]:
    most = max(count for _, count in tallies)
    share = tallies["system", most].rate / tallies["floor", most].rate
    yield Check("f", f"{most} groups: of the floor's hand-offs a second", share, _SHARE, at_least=True)
