# SPDX-License-Identifier: Apache-2.0
"""All replicas are restarted, one after the other, over and over, while jobs contend: nobody sees an error."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from chaos.checkers import Violation
from chaos.observer import Observer
from chaos.processes import ProcessTrouble
from chaos.scenarios.contention import contending, move_all, rest_all, their_hand_offs, wait_turns
from chaos.scenarios.handoffs import Delays, percentile, percentiles
from chaos.scenarios.scenario import WITHIN, Figures, Run, Scenario, judged
from chaos.scenarios.switches import switches
from chaos.world import World
from ledger.records import Phase

_BOUND = 0.2
"""Seconds that a restart may add to a hand-off that it touches (p99)."""

_ENOUGH = 50
"""Hand-offs from which on a percentile says something."""


@dataclass(frozen=True, slots=True)
class Restart:
    """It was told to end, it had ended, another served in its place, and all was quiet again. ns of CLOCK_MONOTONIC."""

    told: int
    ended: int
    serves: int
    quiet: int


def _rolling_restart(run: Run) -> tuple[list[str], list[Violation]]:
    restarts: list[Restart] = []
    stuck: list[Violation] = []
    with contending(run.seed) as (world, eyes):
        names = [f"replica{index}" for index in range(len(world.endpoints))]
        try:
            wait_turns(world, 1)
            while len(restarts) < run.count and not run.over:
                name = names[len(restarts) % len(names)]
                restart = _restart(world, eyes, name)
                run.say(f"{name}: ended {(restart.ended - restart.told) / 1e9:.2f} s after it was told, serves again")
                if name == names[-1]:
                    move_all(world)  # else all would stay at the replica that was restarted first
                    wait_turns(world, 1)
                restarts.append(replace(restart, quiet=time.monotonic_ns()))
                wait_turns(world, 1)
            rest_all(world)
        except (ProcessTrouble, TimeoutError) as error:
            stuck.append(Violation("a restart delays, and no more", str(error)))
        facts, violations = judged(world, eyes)
        own, late = _result(run, world, restarts)
        return [*own, *facts], [*stuck, *violations, *late]


def _restart(world: World, eyes: Observer, name: str) -> Restart:
    told = time.monotonic_ns()
    world.stop(name)
    ended = time.monotonic_ns()
    # Not before the hand-off is over: on one machine a replica that starts slows down what is measured.
    eyes.wait_for(lambda one: one.turn is not None and one.turn.phase is Phase.PREPARING and one.mono > ended, WITHIN)
    world.restart(name)
    serves = time.monotonic_ns()
    return Restart(told, ended, serves, serves)


def _result(run: Run, world: World, restarts: list[Restart]) -> tuple[list[str], list[Violation]]:
    every = their_hand_offs(world)
    quiet = [one for one in every if not any(one.touches(part.told, part.quiet) for part in restarts)]
    leaving = [one for one in every if any(one.touches(part.told, part.ended) for part in restarts)]
    starting = [
        one for one in every if one not in leaving and any(one.touches(part.ended, part.quiet) for part in restarts)
    ]
    delays, other = Delays.of(quiet, leaving), Delays.of(quiet, starting)
    run.note(Figures(len(switches(world.history())), len(restarts), {"replica": len(restarts)}, delays.added))
    facts = [
        f"restarts: {len(restarts)}",
        *delays.facts("a replica that leaves"),
        f"added while one starts on the same machine: {percentiles(other.added)}",
    ]
    late = percentile(delays.added, 99) if delays.added else 0.0
    found = []
    if len(delays.added) >= _ENOUGH and late > _BOUND:
        what = f"p99 of what it adds is {late * 1000:,.0f} ms, above {_BOUND * 1000:,.0f} ms"
        found.append(Violation("a restart is not felt", what))
    return facts, found


ROLLING_RESTART = Scenario(
    "rolling-restart",
    "Replicas that are restarted one after the other are not felt: no error, less than 200 ms more (p99).",
    60,
    _rolling_restart,
)
