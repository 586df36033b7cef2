# SPDX-License-Identifier: Apache-2.0
"""A node refuses every PREPARE for a while: it says why, nobody is lost, and all goes on when it takes them again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from random import Random

from chaos.checkers import Violation
from chaos.faults import Fault
from chaos.faults.refusals import STRANGER, UNSAVABLE
from chaos.observer import Observer, Seen
from chaos.processes import ProcessTrouble
from chaos.scenarios.contention import contending, rest_all, wait_served, wait_turns
from chaos.scenarios.scenario import NS, WITHIN, Figures, Run, Scenario, judged, spread
from chaos.scenarios.switches import switches
from chaos.world import World
from ledger.records import Turn

_LASTS = 2.0
"""Seconds, at most, for which a node goes on refusing once a switch was refused."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A fault, and how the turn has to tell of it."""

    fault: Fault
    told: Callable[[Turn], str]


def _pinned(turn: Turn) -> str:
    held = turn.pinned
    return f"{held.job} is pinned: {held.reason}" if held and "could never be restored" in held.reason else ""


def _blocked(turn: Turn) -> str:
    why = turn.blocked
    return f"{why.node} blocks: {why.reason}" if why and "belongs to no job" in why.reason else ""


_REFUSALS = (Refusal(UNSAVABLE, _pinned), Refusal(STRANGER, _blocked))


def _refusing_node(run: Run) -> tuple[list[str], list[Violation]]:
    random = Random(run.seed)
    recovered: list[float] = []
    told = Counter[str]()
    stuck: list[Violation] = []
    with contending(run.seed) as (world, eyes):
        try:
            for refusal in cycle(_REFUSALS):
                if len(recovered) >= run.count or run.over:
                    break
                wait_turns(world, 1)
                reason = _refuse(world, eyes, refusal, random)
                healed = time.monotonic_ns()
                wait_served(world, healed)
                recovered.append((time.monotonic_ns() - healed) / NS)
                told[refusal.fault.name] += 1
                run.say(f"{reason}; every job had a turn again after {recovered[-1]:.2f} s")
            rest_all(world)
        except (ProcessTrouble, TimeoutError) as error:
            stuck.append(Violation("a refusal is told, and nobody is stuck", str(error)))
        facts, violations = judged(world, eyes)
        run.note(Figures(len(switches(world.history())), len(recovered), told, tuple(recovered)))
        own = f"nodes that refused: {len(recovered)}; every job had a turn again after that: {spread(recovered)}"
        return [own, *facts], [*stuck, *violations]


def _refuse(world: World, eyes: Observer, refusal: Refusal, random: Random) -> str:
    """Until a switch was refused for the right reason, and a little longer. Returns what was told.

    Raises TimeoutError if the turn does not tell it.
    """

    def is_told(one: Seen) -> bool:
        return one.turn is not None and bool(refusal.told(one.turn))

    start = eyes.seen[-1].revision
    harm = refusal.fault.begin(world, random)
    try:
        turn = eyes.wait_for(is_told, WITHIN, after=start).turn
        time.sleep(random.random() * _LASTS)
    finally:
        harm.undo()
    assert turn is not None
    return f"{harm.what}: {refusal.told(turn)}"


REFUSING_NODE = Scenario(
    "refusing-node",
    "A node that refuses every PREPARE for a while says why; no job is lost, and all go on when it takes them again.",
    10,
    _refusing_node,
)
