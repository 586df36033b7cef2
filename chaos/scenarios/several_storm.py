# SPDX-License-Identifier: Apache-2.0
"""What is done to two groups: a replica and the agent of one group's node are killed in turn, in the middle of a
switch.

While the agent is away the other group has to go on by itself. The jobs of both rest then: one that has the other group
already and waits for this one holds it, as rule 29 has it, and nobody could tell that from a group that stands still.
They ask again before the agent is back: it finds an acquire that is granted in one group and waits in the other.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from chaos.elsewhere import Window
from chaos.observer import Observer, Seen
from chaos.processes import ProcessTrouble
from chaos.scenarios.across import without
from chaos.scenarios.contention import wait_phase, wait_served
from chaos.scenarios.scenario import NS, WITHIN, Run, turns_of
from chaos.scenarios.switches import MOVING, phase_took, turn_at
from chaos.world import World
from ledger.records import Phase, TicketState

_PHASES = (Phase.PREPARING, Phase.COMMITTING)
_TRIES = 5
"""Faults for each that has to count; more, and the scenario gives up."""

_REPLICA_AWAY, _AGENT_AWAY = 0.5, 2.0
"""Seconds: at most of a replica, at least of an agent."""

_HALF = 0.5
"""Seconds, at most, for which the agent stays away once a job of both groups has the other one."""

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
        self.returns: list[int] = []  # ns: an agent was started again

    @property
    def hits(self) -> list[Strike]:
        return [one for one in self.strikes if one.counts]

    def blow(self) -> None:
        """Until enough kills count, or no other is to come. Raises ProcessTrouble, TimeoutError: one stopped it."""
        run = self._run
        while len(self.hits) < run.count and len(self.strikes) < run.count * _TRIES and not run.over:
            group = self._random.choice(sorted(self._world.groups))
            strike = self._kill_agent(group) if len(self.hits) % 2 else self._kill_replica(group)
            self.strikes.append(strike)
            run.say(
                f"{strike.victim} in {strike.phase.name} of {group}: "
                f"every job had a turn again after {strike.recovered:.2f} s"
            )

    def _kill_replica(self, group: str) -> Strike:
        victim = f"replica{self._random.randrange(len(self._world.endpoints))}"
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
        after = self._eyes.seen[-1].revision
        for job in both:
            job.run()
        self._eyes.wait_for(lambda one: _has_half(one, group), WITHIN, after=after)
        time.sleep(self._random.random() * _HALF)
        self.returns.append(time.monotonic_ns())
        return self._back(victim, group, at)

    def _kill(self, victim: str, group: str) -> int:
        """At a random moment of the phase that was hit least, of a switch of this group. The time just before it."""
        hits = Counter(one.phase for one in self.hits)
        wanted = min(_PHASES, key=lambda phase: hits[phase])
        typical = phase_took(turns_of(self._world, group), wanted)
        wait_phase(self._eyes, group, wanted)
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
        turn = turn_at(turns_of(self._world, group), at)
        return Strike(at, victim, turn.phase if turn else Phase.IDLE, recovered)


def _has_half(one: Seen, group: str) -> bool:
    """A grant in the other group, of an acquire that wants this one, too."""
    ticket = one.ticket
    return (
        ticket is not None
        and ticket.state is TicketState.GRANTED
        and one.place.group != group
        and group in ticket.groups
    )
