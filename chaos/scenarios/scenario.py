# SPDX-License-Identifier: Apache-2.0
"""What a scenario is, and what it reports."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from chaos.checkers import Evidence, Violation, judge
from chaos.groups import of_group
from chaos.history import Recorded
from chaos.linearizability import check, of_jobs
from chaos.observer import Observer
from chaos.timeline import draw
from chaos.world import World
from ledger.keys import Keys, Kind

NS = 1_000_000_000
WITHIN = 60.0
"""Seconds in which everything that a scenario waits for must happen: far more than it takes, on a slow machine too."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Figures:
    """What can be added up over runs.

    Attributes:
        switches: from the first PREPARE to the grant.
        faults: all that were done.
        hits: faults that counted, by what they hit: a phase of the turn, or a kind of fault.
        delays: seconds that each of these added to its switch, or that a group took to go on.
    """

    switches: int = 0
    faults: int = 0
    hits: Mapping[str, int] = field(default_factory=dict)
    delays: tuple[float, ...] = ()

    @property
    def counting(self) -> int:
        return sum(self.hits.values())

    def __add__(self, other: Figures) -> Figures:
        hits = {name: self.hits.get(name, 0) + other.hits.get(name, 0) for name in [*self.hits, *other.hits]}
        return Figures(self.switches + other.switches, self.faults + other.faults, hits, (*self.delays, *other.delays))


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has shown.

    Attributes:
        facts: sentences with figures, for people.
        violations: promises that were not held; none: all were.
        figures: what the scenario has noted.
    """

    scenario: str
    seed: int
    facts: tuple[str, ...]
    violations: tuple[Violation, ...]
    figures: Figures = field(default_factory=Figures)

    @property
    def held(self) -> bool:
        return not self.violations


class Stop(Protocol):
    """As `threading.Event`: set when the run is to end early."""

    def is_set(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a scenario.

    Attributes:
        seed: of all random choices; the machine's own timing is not in it.
        count: how many faults have to count.
        say: told what happens, a line at a time.
        until: time.monotonic() at which it ends, however many faults have counted.
        stop: it is to end as soon as it can, and say what it has seen.
        noted: what the scenario has to be added up; see `note`.
    """

    seed: int
    count: int
    say: Say
    until: float = math.inf
    stop: Stop | None = None
    noted: list[Figures] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """To be asked between faults: no other is to come."""
        return time.monotonic() >= self.until or (self.stop is not None and self.stop.is_set())

    def note(self, figures: Figures) -> None:
        """Figures that are to be added to those of other runs."""
        self.noted.append(figures)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Attributes:
    promise: what must hold, in a sentence.
    count: faults that have to count, unless told otherwise.
    paced: where a time is given it does its count all the same, and takes that time for it.
    """

    name: str
    promise: str
    count: int
    body: Callable[[Run], tuple[Sequence[str], Sequence[Violation]]]
    paced: bool = False

    def run(self, seed: int, count: int, say: Say, *, until: float = math.inf, stop: Stop | None = None) -> Report:
        """Run it. Raises ProcessTrouble, EtcdServerError or grpc.RpcError when its world does not start."""
        run = Run(seed, count, say, until, stop)
        facts, violations = self.body(run)
        figures = sum(run.noted, Figures())
        return Report(self.name, seed, tuple(facts), tuple(violations), figures)


def observer(world: World) -> Observer:
    return Observer(world.etcd.endpoints, Keys())


def turns_of(world: World, group: str) -> list[Recorded]:
    """The history of one group."""
    return [one for one in world.history() if one.group == group]


def gather(world: World, eyes: Observer, excused: Sequence[str] = (), group: str = "") -> Evidence:
    """All evidence so far of one group; unless told which, of the world's own."""
    group = group or world.group
    groups = {name: job.groups for name, job in world.jobs.items()}
    return Evidence(
        devices={node.name: world.events(node) for node in world.groups[group]},
        turns=turns_of(world, group),
        tickets=[one for one in eyes.seen if one.place.kind is Kind.TICKET and one.place.group == group],
        jobs=of_group({name: job.lines for name, job in world.jobs.items()}, groups, group),
        excused=frozenset(excused),
    )


def judged(
    world: World, eyes: Observer, excused: Sequence[str] = (), group: str = ""
) -> tuple[list[str], list[Violation]]:
    """A sentence on what was looked at, and the violations; of one group, as `gather`."""
    group = group or world.group
    evidence = gather(world, eyes, excused, group)
    grants = sum(1 for one in evidence.tickets if one.ticket and one.ticket.token)
    kernels = sum(1 for events in evidence.devices.values() for event in events if event.name == "touch-end")
    verdict = check(of_jobs(evidence.jobs, evidence.excused))
    violations = [] if verdict.linearizable else [Violation("linearizable", str(verdict))]
    facts = [f"judged: {grants} grants, {kernels} kernels, {len(evidence.turns)} records of the turn; {verdict}"]
    facts += _hindrances(evidence)
    violations += judge(evidence)
    if violations:
        world.keep()
        page = world.folder / f"history-{group}.html"
        page.write_text(draw(of_jobs(evidence.jobs, evidence.excused), verdict, group, world.marks), "utf-8")
        facts.append(f"kept: all logs, the history, and {page}, where it is drawn with the faults")
    return facts, violations


def _hindrances(evidence: Evidence) -> list[str]:
    """Why jobs were pinned and switches refused: nothing that is promised not to be, but to be looked at."""
    pinned, blocked = Counter[str](), Counter[str]()
    was = None
    for one in evidence.turns:
        now = one.turn
        if now and now.pinned and (was is None or was.pinned != now.pinned):
            pinned[f"{now.pinned.job}: {now.pinned.reason}"] += 1
        if now and now.blocked and (was is None or was.blocked != now.blocked):
            blocked[f"{now.blocked.node}: {now.blocked.reason}"] += 1
        was = now
    return [
        *(f"  pinned {count} times: {why}" for why, count in pinned.most_common()),
        *(f"  blocked {count} times: {why}" for why, count in blocked.most_common()),
    ]


def spread(seconds: Sequence[float]) -> str:
    """Median and largest, for people."""
    if not seconds:
        return "none"
    return f"median {median(seconds) * 1000:,.0f} ms, largest {max(seconds) * 1000:,.0f} ms, of {len(seconds)}"
