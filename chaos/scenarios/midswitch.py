# SPDX-License-Identifier: Apache-2.0
"""Something of the system itself dies, or stands still, in the middle of a switch; jobs must see nothing of it.

Three jobs contend for two nodes without a pause, and now and then a fourth gives up in its own switch, which is then
taken back. Before each fault a phase is chosen, the one that was hit least; the fault comes at a random moment in it.
Whether it counts is told by the history afterwards: the phase in which the turn was just before it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median

from chaos.checkers import Violation
from chaos.dev.job import Rhythm
from chaos.dev.lines import Line, Yielded
from chaos.faults.family import AGENT_HELPER, helpers
from chaos.observer import Observer
from chaos.processes import ProcessTrouble
from chaos.quitter import JOB as QUITTER
from chaos.quitter import Quitter
from chaos.scenarios.contention import rest_all, start_all, wait_phase
from chaos.scenarios.scenario import WITHIN, Figures, Run, Scenario, judged, observer, spread
from chaos.scenarios.switches import MOVING, phase_took, switch_at, switches, turn_at
from chaos.world import Shape, World
from ledger.records import Phase

_JOBS = ("job-a", "job-b", "job-c")
_RHYTHM = Rhythm(busy=0.15, idle=0.05, kernel=0.05)
_SHAPE = Shape(bandwidth=20e9, latency=0.02)
_TRIES = 5
"""Faults for each that has to count; more, and the scenario gives up."""

_SHARES = {Phase.PREPARING: 3, Phase.COMMITTING: 4, Phase.RELEASING: 2}
"""Of so many faults each, in these phases. A release costs a switch that leads nowhere, so fewer are wanted."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done, and undone after a random time of up to ``lasts`` seconds.

    Attributes:
        victim: whom it hits; asked beforehand.
    """

    victim: Callable[[World, Random], str]
    do: Callable[[World, str], None]
    undo: Callable[[World, str], None]
    lasts: float
    replicas: int = 3
    etcd: int = 1


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault, at ``at`` (ns of CLOCK_MONOTONIC, just before it), in ``phase``; undone at ``undone``."""

    at: int
    undone: int
    victim: str
    phase: Phase

    @property
    def counts(self) -> bool:
        return self.phase in MOVING


class Storm:
    """One world, and faults in it until enough of them count."""

    def __init__(self, run: Run, fault: Fault, world: World, eyes: Observer, quitter: Quitter) -> None:
        self._run, self._fault, self._world, self._eyes, self._quitter = run, fault, world, eyes, quitter
        self._random = Random(run.seed)
        self.strikes: list[Strike] = []

    @property
    def hits(self) -> Counter[Phase]:
        return Counter(one.phase for one in self.strikes if one.counts)

    def blow(self) -> None:
        """Until enough faults count, or no other is to come. Raises ProcessTrouble, TimeoutError: one stopped it."""
        run = self._run
        while self.hits.total() < run.count and len(self.strikes) < run.count * _TRIES and not run.over:
            strike = self._strike()
            self.strikes.append(strike)
            run.say(_told(self._world, strike))

    def _strike(self) -> Strike:
        """One fault in the phase that was hit least; returns once it is undone and every job has had a turn again."""
        world, fault = self._world, self._fault
        wanted = min(_SHARES, key=lambda phase: (self.hits[phase] / _SHARES[phase], phase.value))
        victim = fault.victim(world, self._random)
        typical = phase_took(world.history(), wanted)
        self._wait_for(wanted)
        time.sleep(self._random.random() * typical)
        at = time.monotonic_ns()
        fault.do(world, victim)
        time.sleep(self._random.random() * fault.lasts)
        fault.undo(world, victim)
        undone = time.monotonic_ns()
        for job in world.jobs.values():
            job.wait_for(lambda lines: any(_after(line, at) for line in lines), WITHIN, "have a turn after the fault")
        turn = turn_at(world.history(), at)
        return Strike(at, undone, victim, turn.phase if turn else Phase.IDLE)

    def _wait_for(self, phase: Phase) -> None:
        """Return as soon as the turn is seen to have come to this phase."""
        if phase is Phase.RELEASING:
            self._quitter.release(WITHIN)
            return
        wait_phase(self._eyes, self._world.group, phase)


def _storm(run: Run, fault: Fault) -> tuple[list[str], list[Violation]]:
    stuck: list[Violation] = []
    with World(replicas=fault.replicas, nodes=2, etcd=fault.etcd, shape=_SHAPE) as world, observer(world) as eyes:
        start_all(world, dict.fromkeys(_JOBS, ()), run.seed, rhythm=_RHYTHM)
        for job in world.jobs.values():
            job.wait_turns(1, WITHIN)
        with Quitter(world.endpoints, world.etcd.endpoints, world.group, eyes, Random(run.seed)) as quitter:
            storm = Storm(run, fault, world, eyes, quitter)
            try:
                storm.blow()
                rest_all(world)
            except (ProcessTrouble, TimeoutError) as error:
                stuck.append(Violation("a fault delays, and no more", str(error)))
        facts, violations = judged(world, eyes, excused=(QUITTER,))
        own, short = _facts(world, storm.strikes, run)
        return [*own, *facts], [*stuck, *violations, *short]


def _after(line: Line, mono: int) -> bool:
    return isinstance(line, Yielded) and line.granted > mono


def _told(world: World, strike: Strike) -> str:
    if not strike.counts:
        return f"{strike.victim} in {strike.phase.name}: does not count"
    switch = switch_at(switches(world.history()), strike.at)
    assert switch is not None
    return (
        f"{strike.victim} in {strike.phase.name}: {switch.course}, {switch.took * 1000:,.0f} ms from PREPARE to grant"
    )


def _facts(world: World, strikes: Sequence[Strike], run: Run) -> tuple[list[str], list[Violation]]:
    found = switches(world.history())
    counting = [(one, switch) for one in strikes if one.counts and (switch := switch_at(found, one.at))]
    by_phase = Counter(one.phase.name for one, _ in counting)
    courses = Counter(f"{one.phase.name}: {switch.course}" for one, switch in counting)
    struck = {switch.begin for one in strikes if (switch := switch_at(found, one.at))}
    # What a fault touched without counting is neither: it was under way while something was away.
    away = [(one.at, one.undone) for one in strikes]
    quiet = [one.took for one in found if one.end and not any(a < one.end and one.begin < b for a, b in away)]
    usual = median(quiet) if quiet else 0.0
    delays = [max(switch.took - usual, 0.0) for _, switch in counting if switch.end]
    run.note(Figures(len(found), len(strikes), by_phase, tuple(delays)))
    facts = [
        f"faults: {len(strikes)}, counting {len(counting)} ({', '.join(f'{n} in {p}' for p, n in by_phase.items())})",
        *(f"  {count} times {course}" for course, count in courses.most_common()),
        f"switches: {len(found)}, {len(struck)} of them struck; undisturbed {spread(quiet)}",
        f"delay added to a struck switch: {spread(delays)}",
    ]
    short = []
    if len(counting) < run.count and not run.over:
        short.append(Violation("the scenario itself", f"{len(counting)} of {run.count} faults hit a switch"))
    return facts, short


def _kill(world: World, name: str) -> None:
    world.kill(name)


def _restart(world: World, name: str) -> None:
    world.restart(name)


def _any_replica(world: World, random: Random) -> str:
    return f"replica{random.randrange(len(world.endpoints))}"


def _any_agent(world: World, random: Random) -> str:
    return f"agent-{random.choice(world.nodes).name}"


def _etcd_leader(world: World, random: Random) -> str:
    del random  # there is one
    return world.etcd.members[world.etcd.leader()].name


def _kill_helpers(world: World, name: str) -> None:
    """Those of an agent, which do its driver's calls."""
    agent = world.pid(name)
    for pid in helpers(agent, AGENT_HELPER) if agent is not None else ():
        world.mark(f"SIGKILL helper {pid} of {name}")
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(pid, signal.SIGKILL)


def _nothing(world: World, name: str) -> None:
    """The agent starts others."""


def _freeze(world: World, name: str) -> None:
    world.freeze(name)


def _thaw(world: World, name: str) -> None:
    world.thaw(name)


_REPLICA_DIES = Fault(_any_replica, _kill, _restart, lasts=0.5)
_AGENT_DIES = Fault(_any_agent, _kill, _restart, lasts=1.0)
_HELPERS_DIE = Fault(_any_agent, _kill_helpers, _nothing, lasts=0.0)
_LEADER_DIES = Fault(_etcd_leader, _kill, _restart, lasts=1.0, etcd=3)
_REPLICA_STOPS = Fault(_any_replica, _freeze, _thaw, lasts=6.0)

KILL_REPLICA = Scenario(
    "kill-replica-mid-switch",
    "A replica that is killed in a switch delays it, and nobody sees more of it.",
    20,
    lambda run: _storm(run, _REPLICA_DIES),
)
KILL_AGENT = Scenario(
    "kill-agent-mid-switch",
    "An agent that is killed in a switch and started again finishes it or takes it back; no state is lost.",
    20,
    lambda run: _storm(run, _AGENT_DIES),
)
KILL_HELPER = Scenario(
    "kill-helper-mid-switch",
    "An agent's helpers are killed in a switch, in their driver calls: it is finished or taken back; no state is lost.",
    20,
    lambda run: _storm(run, _HELPERS_DIE),
)
KILL_ETCD_LEADER = Scenario(
    "kill-etcd-leader",
    "The leader of etcd's three members is killed in a switch: no turn, no place and no grant is lost.",
    10,
    lambda run: _storm(run, _LEADER_DIES),
)
STOP_REPLICA = Scenario(
    "stop-replica",
    "A replica that stands still in a switch and wakes up late changes nothing any more.",
    10,
    lambda run: _storm(run, _REPLICA_STOPS),
)
