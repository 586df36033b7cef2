# SPDX-License-Identifier: Apache-2.0
"""What it costs a switch when the replica that would write its next step dies, or stands still, in the middle of it.

Switches that nobody touches go on in between, in the same run on the same machine: the cost is what is above them.
It is measured where it is felt, from the holder's yield to the grant that the next job hears of.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from chaos.checkers import Violation
from chaos.observer import Observer
from chaos.processes import ProcessTrouble
from chaos.scenarios.contention import contending, move_all, rest_all, their_hand_offs, wait_served, wait_turns
from chaos.scenarios.handoffs import Delays, HandOff, percentile, percentiles
from chaos.scenarios.scenario import WITHIN, Figures, Run, Scenario, judged
from chaos.scenarios.switches import MOVING, phase_took, switches, turn_at
from chaos.serving import serving
from chaos.world import World
from ledger.records import Phase

_QUIET_TURNS = 1
"""Turns of each job between two faults: three hand-offs that are left alone beside each that is struck."""

_TRIES = 4
"""Faults for each that has to count."""

_ENOUGH = 50
"""Faults from which on a percentile says something, so that it is held against its bound."""

_PHASES = (Phase.PREPARING, Phase.COMMITTING)


@dataclass(frozen=True, slots=True)
class Harm:
    """What is done to a replica, and undone; ``percent`` of such faults are to add at most ``bound`` seconds."""

    what: str
    do: Callable[[World, str], None]
    undo: Callable[[World, str], None]
    percent: float
    bound: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A fault at ``at``, and when everything was as before. ns of CLOCK_MONOTONIC.

    Attributes:
        served: the jobs whose sessions were at that replica.
    """

    at: int
    over: int
    replica: str
    served: frozenset[str]


@dataclass(frozen=True, slots=True)
class Struck:
    """A hit that counts: between the first PREPARE and the grant of this hand-off."""

    hit: Hit
    phase: Phase
    hand_off: HandOff

    @property
    def of_its_own(self) -> bool:
        """The replica had the next job's session, too."""
        return self.hand_off.job in self.hit.served

    def __str__(self) -> str:
        whose = ", which served that job," if self.of_its_own else ""
        return (
            f"{self.hit.replica}{whose} in {self.phase.name}: {self.hand_off.took * 1000:,.0f} ms from yield to grant"
        )


def _failover(run: Run, harm: Harm) -> tuple[list[str], list[Violation]]:
    random = Random(run.seed)
    hits: list[Hit] = []
    stuck: list[Violation] = []
    with contending(run.seed) as (world, eyes):
        try:
            wait_turns(world, _QUIET_TURNS)
            while len(_struck(world, hits)) < run.count and len(hits) < run.count * _TRIES and not run.over:
                hit = _hit(world, eyes, harm, random)
                struck = _struck(world, [hit])
                run.say(str(struck[0]) if struck else f"{hit.replica} outside a switch: does not count")
                move_all(world)
                wait_turns(world, 1)
                hits.append(replace(hit, over=time.monotonic_ns()))  # sessions that open are no quiet time either
                wait_turns(world, _QUIET_TURNS)
            rest_all(world)
        except (ProcessTrouble, TimeoutError) as error:
            stuck.append(Violation("a fault delays, and no more", str(error)))
        facts, violations = judged(world, eyes)
        own, missed = _result(run, world, harm, hits)
        return [*own, *facts], [*stuck, *violations, *missed]


def _hit(world: World, eyes: Observer, harm: Harm, random: Random) -> Hit:
    """One fault in a phase of the next switch; returns when it is undone and each job has had a turn since."""
    now = serving(world)
    phase = random.choice(_PHASES)
    typical = phase_took(world.history(), phase)
    seen = eyes.seen
    eyes.wait_for(lambda one: one.turn is not None and one.turn.phase is phase, WITHIN, after=seen[-1].revision)
    time.sleep(random.random() * typical)
    at = time.monotonic_ns()
    harm.do(world, now.first)
    wait_served(world, at)
    # Not before: on one machine a replica that starts slows down what is measured.
    harm.undo(world, now.first)
    return Hit(at, time.monotonic_ns(), now.first, now.of(now.first))


def _struck(world: World, hits: list[Hit]) -> list[Struck]:
    every, history = their_hand_offs(world), world.history()
    found = []
    for hit in hits:
        turn = turn_at(history, hit.at)
        hand_off = next((one for one in every if one.begin <= hit.at < one.end), None)
        if turn is not None and turn.phase in MOVING and hand_off is not None:
            found.append(Struck(hit, turn.phase, hand_off))
    return found


def _result(run: Run, world: World, harm: Harm, hits: list[Hit]) -> tuple[list[str], list[Violation]]:
    struck, every = _struck(world, hits), their_hand_offs(world)
    touched = [one for one in every if any(one.touches(hit.at, hit.over) for hit in hits)]
    quiet = [one for one in every if one not in touched]
    delays = Delays.of(quiet, [one.hand_off for one in struck])
    phases = Counter(one.phase.name for one in struck)
    run.note(Figures(len(switches(world.history())), len(hits), phases, delays.added))
    by_phase = ", ".join(f"{count} in {phase}" for phase, count in phases.items())
    served = sum(one.of_its_own for one in struck)
    facts = [
        f"acting replicas {harm.what} in a switch: {len(struck)} ({by_phase}), of {len(hits)} in all",
        f"of these had the next job's session, too: {served}",
        *delays.facts(f"one {harm.what}"),
        f"all until it was back, also later ones: {percentiles([one.took for one in touched])}",
    ]
    missed = []
    if len(struck) < run.count and not run.over:
        missed.append(Violation("the scenario itself", f"{len(struck)} of {run.count} faults hit a switch"))
    late = percentile(delays.added, harm.percent) if delays.added else 0.0
    if len(struck) >= _ENOUGH and late > harm.bound:
        what = f"p{harm.percent:g} of what it adds is {late * 1000:,.0f} ms, above {harm.bound * 1000:,.0f} ms"
        missed.append(Violation("failover is quick", what))
    return facts, missed


def _kill(world: World, name: str) -> None:
    world.kill(name)


def _restart(world: World, name: str) -> None:
    world.restart(name)


def _freeze(world: World, name: str) -> None:
    world.freeze(name)


def _thaw(world: World, name: str) -> None:
    """Let it wake up late; then it begins anew, since one that was passed over ranks last: it would not act next time.

    Raises ProcessTrouble.
    """
    world.thaw(name)
    wait_turns(world, 1)
    world.stop(name)
    world.restart(name)


FAILOVER = Scenario(
    "failover",
    "The acting replica is killed in a switch: that adds less than 500 ms to it (p99).",
    200,
    lambda run: _failover(run, Harm("killed", _kill, _restart, percent=99, bound=0.5)),
)
FAILOVER_FROZEN = Scenario(
    "failover-frozen",
    "The acting replica stands still in a switch: that adds at most 5 s to it.",
    50,
    lambda run: _failover(run, Harm("frozen", _freeze, _thaw, percent=100, bound=5.0)),
)
