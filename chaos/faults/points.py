# SPDX-License-Identifier: Apache-2.0
"""A process that dies at a failpoint, in a world that has them: between two steps, not at a moment by the clock."""

from __future__ import annotations

from random import Random

from chaos.failpoints.arming import Arming
from chaos.failpoints.registry import POINTS, Traffic
from chaos.failpoints.victim import restart_victim
from chaos.faults.fault import Fault, Harm, NotPossible, Party
from chaos.world import World

_HIT_SECONDS = 10.0
_OFTEN = tuple(point for point in POINTS if point.traffic is Traffic.TURNS)


def _begin(world: World, random: Random) -> Harm:
    """Arm a point that is passed in every turn. It is hit at once, as a rule; if not until the end, it is disarmed."""
    if world.failpoints is None:
        raise NotPossible("this world has no failpoints")
    point, arming = random.choice(_OFTEN), Arming(world.failpoints)
    world.mark(f"armed: {point.name}")
    arming.arm(point)

    def undo() -> None:
        if not arming.wait_hit(point, _HIT_SECONDS):
            arming.disarm(point)
        if arming.wait_hit(point, 0.0):  # also if only just before it was disarmed
            restart_victim(world, point)

    return Harm(f"death at {point.name}", undo)


FAULTS: tuple[Fault, ...] = (Fault("failpoint", Party.REPLICA, 1.0, _begin, alone=True),)
