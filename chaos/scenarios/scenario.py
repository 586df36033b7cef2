# SPDX-License-Identifier: Apache-2.0
"""What a scenario is, and what it reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from chaos.checkers import Evidence, Violation, judge
from chaos.linearizability import Verdict, check, of_jobs
from chaos.observer import Observer
from chaos.timeline import draw
from chaos.world import World
from ledger.keys import Keys, Kind

NS = 1_000_000_000
WITHIN = 60.0
"""Seconds in which everything that a scenario waits for must happen: far more than it takes, on a slow machine too."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has shown.

    Attributes:
        facts: sentences with figures, for people.
        violations: promises that were not held; none: all were.
    """

    scenario: str
    seed: int
    facts: tuple[str, ...]
    violations: tuple[Violation, ...]

    @property
    def held(self) -> bool:
        return not self.violations


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a scenario.

    Attributes:
        seed: of all random choices; the machine's own timing is not in it.
        count: how many faults have to count.
        say: told what happens, a line at a time.
    """

    seed: int
    count: int
    say: Say


@dataclass(frozen=True, slots=True)
class Scenario:
    """Attributes:
    promise: what must hold, in a sentence.
    count: faults that have to count, unless told otherwise.
    """

    name: str
    promise: str
    count: int
    body: Callable[[Run], tuple[Sequence[str], Sequence[Violation]]]

    def run(self, seed: int, count: int, say: Say) -> Report:
        """Run it. Raises ProcessTrouble, EtcdServerError or grpc.RpcError when its world does not start."""
        facts, violations = self.body(Run(seed, count, say))
        return Report(self.name, seed, tuple(facts), tuple(violations))


def observer(world: World) -> Observer:
    return Observer(world.etcd.endpoints, Keys())


def gather(world: World, eyes: Observer, excused: Sequence[str] = ()) -> Evidence:
    """All evidence so far."""
    return Evidence(
        devices={node.name: world.events(node) for node in world.nodes},
        turns=[one for one in world.history() if one.group == world.group],
        tickets=[one for one in eyes.seen if one.place.kind is Kind.TICKET and one.place.group == world.group],
        jobs={name: job.lines for name, job in world.jobs.items()},
        excused=frozenset(excused),
    )


def judged(world: World, eyes: Observer, excused: Sequence[str] = ()) -> tuple[list[str], list[Violation]]:
    """A sentence on what was looked at, and the violations."""
    evidence = gather(world, eyes, excused)
    grants = sum(1 for one in evidence.tickets if one.ticket and one.ticket.token)
    kernels = sum(1 for events in evidence.devices.values() for event in events if event.name == "touch-end")
    verdict, violations = one_lock(evidence, world)
    facts = [f"judged: {grants} grants, {kernels} kernels, {len(evidence.turns)} records of the turn; {verdict}"]
    return facts, [*judge(evidence), *violations]


def one_lock(evidence: Evidence, world: World) -> tuple[Verdict, list[Violation]]:
    """Whether what the jobs saw is a lock's history. One that is not is drawn, and the world's folder kept for it."""
    operations = of_jobs(evidence.jobs, evidence.excused)
    verdict = check(operations)
    if verdict.linearizable:
        return verdict, []
    page = world.folder / f"history-{world.group}.html"
    page.write_text(draw(operations, verdict, world.group), encoding="utf-8")
    world.keep()
    return verdict, [Violation("linearizable", f"{verdict}; drawn in {page}")]


def spread(seconds: Sequence[float]) -> str:
    """Median and largest, for people."""
    if not seconds:
        return "none"
    return f"median {median(seconds) * 1000:,.0f} ms, largest {max(seconds) * 1000:,.0f} ms, of {len(seconds)}"
