# SPDX-License-Identifier: Apache-2.0
"""A node that answers every PREPARE with REFUSED for a while: nothing has moved yet, and nothing may be lost."""

from __future__ import annotations

from random import Random

from chaos.faults.fault import Fault, Harm, Party
from chaos.processes import Child
from chaos.world import World
from nodeagent.backends.sim.driver import SimulatedDriver
from nodeagent.backends.sim.faults import FaultKind
from nodeagent.discovery import GROUP

_READY_SECONDS = 60.0
_LITTLE = 16
"""Bytes of a process that is merely there."""


def _unsavable(world: World, random: Random) -> Harm:
    """Whoever is on the devices of a node holds what could never be restored, so it is pinned."""
    node = random.choice(world.nodes)
    what = f"nothing can be saved on {node.name}"
    world.mark(what)
    driver = SimulatedDriver(node.socket)
    driver.fault(FaultKind.NCCL)

    def undo() -> None:
        world.mark(f"all can be saved on {node.name} again")
        driver.clear_faults()
        driver.close()

    return Harm(what, undo)


def _stranger(world: World, random: Random) -> Harm:
    """A process that belongs to no job is on the devices of a node: whose they are is not clear any more."""
    node = random.choice(world.nodes)
    stranger = Child(
        "stranger",
        ("-m", "chaos.dev.worker", str(node.socket), *node.devices),
        world.folder / "stranger.log",
        environment={GROUP: "none-of-ours"},
        ready=r"^\{",
    )
    what = f"a stranger on {node.name}"
    world.mark(what)
    stranger.start()
    try:
        stranger.write(f"attach {_LITTLE} {_LITTLE}")
        stranger.wait_ready(_READY_SECONDS)
    except BaseException:
        stranger.kill()
        raise

    def undo() -> None:
        world.mark(f"the stranger on {node.name} is gone")
        stranger.kill()

    return Harm(what, undo)


UNSAVABLE = Fault(
    "device-unsavable",
    Party.DEVICE,
    4.0,
    _unsavable,
    # A switch that another fault has left half done may kill in the end what cannot be saved.
    alone=True,
)
STRANGER = Fault("device-stranger", Party.DEVICE, 4.0, _stranger)

FAULTS: tuple[Fault, ...] = (UNSAVABLE, STRANGER)
