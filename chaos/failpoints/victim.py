# SPDX-License-Identifier: Apache-2.0
"""Who died at a failpoint. A point is taken before its process is dead, so the death is waited for."""

from __future__ import annotations

import time

from chaos.failpoints.registry import Party, Point
from chaos.world import World

_LOOK_SECONDS = 0.02
_DEATH_SECONDS = 10.0
_OWN_PROCESS = frozenset({Party.REPLICA, Party.AGENT, Party.ANY})
"""Parties that the world starts, and has to start again; a helper's parent sees to that itself."""


def restart_victim(world: World, point: Point) -> str:
    """Start again who died at a point that was taken, once it is seen to be dead. Returns its name.

    Raises TimeoutError if no process dies.
    """
    if point.party not in _OWN_PROCESS:
        return "a helper"
    victim = _dead(world)
    world.restart(victim)
    return victim


def _dead(world: World) -> str:
    limit = time.monotonic() + _DEATH_SECONDS
    while True:
        for name in world.names:
            if name.startswith(("replica", "agent-")) and world.pid(name) is None:
                return name
        if time.monotonic() > limit:
            raise TimeoutError("a failpoint was taken, and no process has died of it")
        time.sleep(_LOOK_SECONDS)
