# SPDX-License-Identifier: Apache-2.0
"""Two groups on a node each, jobs that take turns in one of them, and jobs that take both at once.

In turn a replica and the agent of one group's node are killed in the middle of a switch. While the agent is away the
other group has to go on by itself. The jobs of both rest then: one that has the other group already and waits for this
one holds it, as rule 29 has it, and nobody could tell that from a group that stands still. They ask again before the
agent is back, so that half of what they want is granted and half has to wait for it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random

from chaos.checkers import Violation
from chaos.dev.job import Rhythm
from chaos.elsewhere import Window, stopped
from chaos.history import Recorded
from chaos.jobs import JobProcess
from chaos.observer import Observer, Seen
from chaos.processes import ProcessTrouble
from chaos.scenarios.contention import rest_all, wait_served, wait_turns
from chaos.scenarios.scenario import NS, WITHIN, Figures, Run, Scenario, judged, observer, spread
from chaos.scenarios.switches import MOVING, phase_took, switches, turn_at
from chaos.together import acquires, together
from chaos.world import Shape, World
from ledger.keys import Kind
from ledger.records import Phase

_GROUPS = ("left", "right")
_JOBS = {
    "left-a": ("left",),
    "left-b": ("left",),
    "right-a": ("right",),
    "right-b": ("right",),
    "both-a": ("left", "right"),
    "both-b": ("right", "left"),
}
_RHYTHM = Rhythm(busy=0.1, idle=0.05, kernel=0.05)
_SHAPE = Shape(bandwidth=20e9, latency=0.02)
_PHASES = (Phase.PREPARING, Phase.COMMITTING)
_TRIES = 5
"""Faults for each that has to count; more, and the scenario gives up."""

_REPLICAS = 3
_REPLICA_AWAY, _AGENT_AWAY = 0.5, 2.0
"""Seconds: at most of a replica, at least of an agent."""

_ELSEWHERE = 8.0
"""Seconds in which the jobs of the other group must have had a turn: less than until the agent's registration ends,
which must not be what they wait for."""


@dataclass(frozen=True, slots=True)
class Strike:
    """One kill at ``at`` (ns of CLOCK_MONOTONIC), and how long after its victim was back each job had a turn (s)."""

    at: int
    victim: str
    phase: Phase
    recovered: float

    @property
    def counts(self) -> bool:
        return self.phase in MOVING

    @property
    def party(self) -> str:
        return "agent" if self.victim.startswith("agent") else "replica"


class Storm:
    """One world, and kills in it until enough of them count."""

    def __init__(self, run: Run, world: World, eyes: Observer) -> None:
        self._run, self._world, self._eyes = run, world, eyes
        self._random = Random(run.seed)
        self.strikes: list[Strike] = []
        self.windows: list[Window] = []

    @property
    def hits(self) -> list[Strike]:
        return [one for one in self.strikes if one.counts]

    def blow(self) -> None:
        """Until enough kills count, or no other is to come. Raises ProcessTrouble, TimeoutError: one stopped it."""
        run = self._run
        while len(self.hits) < run.count and len(self.strikes) < run.count * _TRIES and not run.over:
            group = self._random.choice(_GROUPS)
            strike = self._kill_agent(group) if len(self.hits) % 2 else self._kill_replica(group)
            self.strikes.append(strike)
            run.say(
                f"{strike.victim} in {strike.phase.name} of {group}: "
                f"every job had a turn again after {strike.recovered:.2f} s"
            )

    def _kill_replica(self, group: str) -> Strike:
        victim = f"replica{self._random.randrange(_REPLICAS)}"
        at = self._kill(victim, group)
        time.sleep(self._random.random() * _REPLICA_AWAY)
        return self._back(victim, group, at)

    def _kill_agent(self, group: str) -> Strike:
        """One that stays away until the other group has been seen to go on, and then is asked for by jobs of both."""
        (node,) = self._world.groups[group]
        victim, both = f"agent-{node.name}", [job for job in self._world.jobs.values() if len(job.groups) > 1]
        for job in both:
            job.rest()
        for job in both:
            job.wait_rested(WITHIN)
        at = self._kill(victim, group)
        begin = time.monotonic_ns()
        time.sleep(_AGENT_AWAY)
        until = begin / NS + _ELSEWHERE
        for job in without(self._world, node.name):
            # If it does not come to that, the window says so when it is judged.
            with suppress(ProcessTrouble):
                job.wait_for(
                    lambda lines: Window(begin, time.monotonic_ns(), node.name).turns(lines) > 0,
                    max(until - time.monotonic(), 0.0),
                    "have a turn",
                )
        window = Window(begin, time.monotonic_ns(), node.name)
        assert self._world.pid(victim) is None, "nobody starts it but this scenario"
        self.windows.append(window)
        for job in both:
            job.run()
        time.sleep(self._random.random())
        return self._back(victim, group, at)

    def _kill(self, victim: str, group: str) -> int:
        """At a random moment of the phase that was hit least, of a switch of this group. The time just before it."""
        hits = Counter(one.phase for one in self.hits)
        wanted = min(_PHASES, key=lambda phase: hits[phase])
        typical = phase_took(_turns(self._world, group), wanted)
        seen = self._eyes.seen

        def is_there(one: Seen) -> bool:
            return one.place.group == group and one.turn is not None and one.turn.phase is wanted

        self._eyes.wait_for(is_there, WITHIN, after=seen[-1].revision if seen else 0)
        time.sleep(self._random.random() * typical)
        at = time.monotonic_ns()
        self._world.kill(victim)
        return at

    def _back(self, victim: str, group: str, at: int) -> Strike:
        """Start it again, and wait until every job has had a turn since."""
        self._world.restart(victim)
        healed = time.monotonic_ns()
        wait_served(self._world, healed)
        recovered = (time.monotonic_ns() - healed) / NS
        turn = turn_at(_turns(self._world, group), at)
        return Strike(at, victim, turn.phase if turn else Phase.IDLE, recovered)


def without(world: World, node: str) -> list[JobProcess]:
    """The jobs that do not use this node."""
    return [
        job
        for job in world.jobs.values()
        if not any(one.name == node for group in job.groups for one in world.groups[group])
    ]


def _turns(world: World, group: str) -> list[Recorded]:
    return [one for one in world.history() if one.group == group]


def _several(run: Run) -> tuple[list[str], list[Violation]]:
    violations: list[Violation] = []
    with World(replicas=_REPLICAS, nodes=2, group="", shape=_SHAPE) as world, observer(world) as eyes:
        for group, node in zip(_GROUPS, world.nodes, strict=True):
            world.put_group(group, [node])
        with ThreadPoolExecutor(len(_JOBS)) as pool:
            start = partial(world.start_job, rhythm=_RHYTHM)
            starting = [
                pool.submit(start, name, seed=run.seed * 10 + index, groups=groups)
                for index, (name, groups) in enumerate(_JOBS.items())
            ]
            for one in starting:
                one.result()
        for job in world.jobs.values():
            job.run()
        storm = Storm(run, world, eyes)
        try:
            wait_turns(world, 1)
            storm.blow()
            rest_all(world)
        except (ProcessTrouble, TimeoutError) as error:
            violations.append(Violation("a fault delays, and no more", str(error)))
        facts = _facts(run, world, storm)
        for group in _GROUPS:
            seen, wrong = judged(world, eyes, group=group)
            facts += [f"{group}: {one}" for one in seen]
            violations += [Violation(one.promise, f"in {group}: {one.what}") for one in wrong]
        seen, wrong = _judged_across(run, world, eyes, storm)
        return [*facts, *seen], [*violations, *wrong]


def _facts(run: Run, world: World, storm: Storm) -> list[str]:
    hits = Counter(f"{one.party} in {one.phase.name}" for one in storm.hits)
    recovered = tuple(one.recovered for one in storm.hits)
    found = sum(len(switches(_turns(world, group))) for group in _GROUPS)
    run.note(Figures(found, len(storm.strikes), hits, recovered))
    told = ", ".join(f"{count} {what}" for what, count in hits.items())
    return [
        f"faults: {len(storm.strikes)}, counting {len(storm.hits)} ({told})",
        f"switches: {found}; every job had a turn again after a fault: {spread(recovered)}",
    ]


def _judged_across(run: Run, world: World, eyes: Observer, storm: Storm) -> tuple[list[str], list[Violation]]:
    """What no group shows by itself: that the other went on, and that jobs of both had both."""
    wrong: list[Violation] = []
    facts: list[str] = []
    for window in storm.windows:
        elsewhere = {job.name: job.lines for job in without(world, window.node)}
        turns = ", ".join(f"{window.turns(lines)} of {job}" for job, lines in elsewhere.items())
        facts.append(f"{window.seconds:.1f} s without the agent of {window.node}; turns in the other group: {turns}")
        wrong += stopped(window, elsewhere)
    found = acquires(one for one in eyes.seen if one.place.kind is Kind.TICKET)
    wrong += together(found, {name: job.lines for name, job in world.jobs.items()})
    had = [one for one in found if one.held]
    grants = [[seat.granted_at for seat in one.seats.values()] for one in had]
    facts.append(
        f"acquires of both groups: {len(found)}, {len(had)} of which had both; "
        f"from the first group's grant to the other's: {spread([(max(one) - min(one)) / NS for one in grants])}"
    )
    if wrong:
        world.keep()
        facts.append(f"kept: all logs and the history, in {world.folder}")
    if run.over:
        return facts, wrong
    short: Sequence[tuple[bool, str]] = (
        (len(storm.hits) < run.count, f"{len(storm.hits)} of {run.count} faults hit a switch"),
        (run.count > 1 and not storm.windows, "at no time an agent was away"),
        (not had, "no acquire of both groups was looked at"),
    )
    return facts, [*wrong, *(Violation("the scenario itself", why) for missing, why in short if missing)]


SEVERAL_GROUPS = Scenario(
    "several-groups",
    "Who takes two groups at once gets both or keeps none; an agent that is killed stops no group but its own.",
    10,
    _several,
)
