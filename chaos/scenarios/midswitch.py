# SPDX-License-Identifier: Apache-2.0
"""Something of the system itself dies, or stands still, in the middle of a switch; jobs must see nothing of it.

Three jobs contend for two nodes without a pause. A fault comes at a random moment after a switch has begun; whether it
counts is told by the history afterwards: the turn was PREPARING, COMMITTING or RELEASING just before it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import median

from chaos.checkers import Violation
from chaos.dev.job import Rhythm
from chaos.dev.lines import Line, Yielded
from chaos.observer import Observer, Seen
from chaos.processes import ProcessTrouble
from chaos.scenarios.scenario import WITHIN, Run, Scenario, judged, observer, spread
from chaos.scenarios.switches import MOVING, Switch, switch_at, switches, turn_at
from chaos.world import Shape, World
from ledger.records import Phase

_JOBS = ("job-a", "job-b", "job-c")
_RHYTHM = Rhythm(busy=0.15, idle=0.05, kernel=0.05)
_SHAPE = Shape(bandwidth=20e9, latency=0.02)
_TRIES = 5
"""Faults for each that has to count; more, and the scenario gives up."""


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
    """One fault, at ``at`` (ns of CLOCK_MONOTONIC, just before it), and when each job had had a turn again."""

    at: int
    undone: int
    victim: str


def _storm(run: Run, fault: Fault) -> tuple[list[str], list[Violation]]:
    random = Random(run.seed)
    strikes: list[Strike] = []
    stuck: list[Violation] = []
    with World(replicas=fault.replicas, nodes=2, etcd=fault.etcd, shape=_SHAPE) as world, observer(world) as eyes:
        with ThreadPoolExecutor(len(_JOBS)) as pool:
            start = partial(world.start_job, rhythm=_RHYTHM)
            for starting in [pool.submit(start, name, seed=run.seed * 10 + i) for i, name in enumerate(_JOBS)]:
                starting.result()
        for job in world.jobs.values():
            job.run()
        for job in world.jobs.values():
            job.wait_turns(1, WITHIN)
        try:
            while _counting(world, strikes) < run.count and len(strikes) < run.count * _TRIES:
                strikes.append(_strike(world, eyes, fault, random))
                run.say(_told(world, strikes[-1]))
            for job in world.jobs.values():
                job.rest()
            for job in world.jobs.values():
                job.wait_rested(WITHIN)
        except (ProcessTrouble, TimeoutError) as error:
            stuck.append(Violation("a fault delays, and no more", str(error)))
        facts, violations = judged(world, eyes)
        own, short = _facts(world, strikes, run.count)
        return [*own, *facts], [*stuck, *violations, *short]


def _strike(world: World, eyes: Observer, fault: Fault, random: Random) -> Strike:
    """One fault after the next switch has begun; returns once it is undone and every job has had a turn again."""
    victim = fault.victim(world, random)
    typical = _typical(switches(world.history()))
    seen = eyes.seen
    eyes.wait_for(_begins, WITHIN, after=seen[-1].revision if seen else 0)
    # The square: early moments more often, since PREPARE is the shorter of the phases.
    time.sleep(random.random() ** 2 * typical)
    at = time.monotonic_ns()
    fault.do(world, victim)
    time.sleep(random.random() * fault.lasts)
    fault.undo(world, victim)
    undone = time.monotonic_ns()
    for job in world.jobs.values():
        job.wait_for(lambda lines: any(_after(line, at) for line in lines), WITHIN, "have a turn after the fault")
    return Strike(at, undone, victim)


def _after(line: Line, mono: int) -> bool:
    return isinstance(line, Yielded) and line.granted > mono


def _begins(seen: Seen) -> bool:
    return seen.turn is not None and seen.turn.phase is Phase.PREPARING


def _typical(found: Sequence[Switch]) -> float:
    return median(one.took for one in found if one.end)


def _phase(world: World, strike: Strike) -> Phase:
    turn = turn_at(world.history(), strike.at)
    return turn.phase if turn else Phase.IDLE


def _counting(world: World, strikes: Sequence[Strike]) -> int:
    return sum(_phase(world, one) in MOVING for one in strikes)


def _told(world: World, strike: Strike) -> str:
    phase = _phase(world, strike)
    if phase not in MOVING:
        return f"{strike.victim} in {phase.name}: does not count"
    switch = switch_at(switches(world.history()), strike.at)
    assert switch is not None
    return f"{strike.victim} in {phase.name}: {switch.course}, {switch.took * 1000:,.0f} ms from PREPARE to grant"


def _facts(world: World, strikes: Sequence[Strike], wanted: int) -> tuple[list[str], list[Violation]]:
    found = switches(world.history())
    hit = [(one, _phase(world, one), switch_at(found, one.at)) for one in strikes]
    counting = [(one, phase, switch) for one, phase, switch in hit if phase in MOVING and switch]
    by_phase = Counter(phase.name for _, phase, _ in counting)
    courses = Counter(f"{phase.name}: {switch.course}" for _, phase, switch in counting)
    struck = {switch.begin for _, _, switch in hit if switch}
    # What a fault touched without counting is neither: it was under way while something was away.
    away = [(one.at, one.undone) for one in strikes]
    quiet = [one.took for one in found if one.end and not any(a < one.end and one.begin < b for a, b in away)]
    usual = median(quiet) if quiet else 0.0
    delays = [max(switch.took - usual, 0.0) for _, _, switch in counting if switch.end]
    facts = [
        f"faults: {len(strikes)}, counting {len(counting)} ({', '.join(f'{n} in {p}' for p, n in by_phase.items())})",
        *(f"  {count} times {course}" for course, count in courses.most_common()),
        f"switches: {len(found)}, {len(struck)} of them struck; undisturbed {spread(quiet)}",
        f"delay added to a struck switch: {spread(delays)}",
    ]
    short = []
    if len(counting) < wanted:
        short.append(Violation("the scenario itself", f"{len(counting)} of {wanted} faults hit a switch"))
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


def _freeze(world: World, name: str) -> None:
    world.freeze(name)


def _thaw(world: World, name: str) -> None:
    world.thaw(name)


_REPLICA_DIES = Fault(_any_replica, _kill, _restart, lasts=0.5)
_AGENT_DIES = Fault(_any_agent, _kill, _restart, lasts=1.0)
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
