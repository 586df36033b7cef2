# SPDX-License-Identifier: Apache-2.0
"""What a process has not seen of etcd's history is compacted away: it has to list all anew when it wakes up."""

from __future__ import annotations

from random import Random

from chaos import background
from chaos.faults.fault import Fault, Harm, Party
from chaos.faults.signals import any_agent, any_replica
from chaos.world import World
from ledger.etcd import EtcdClient
from ledger.keys import Keys

_SECONDS = 30.0


def _begin(world: World, random: Random) -> Harm:
    """Stop one that watches; what is written until it is thawed is compacted before, and its connections are cut."""
    victim = random.choice((any_replica, any_agent))(world, random)
    world.freeze(victim)

    def undo() -> None:
        revision = background.call(_compact(world.etcd.endpoints), _SECONDS)
        world.mark(f"compaction at revision {revision}")
        for (source, _), link in world.links.items():
            if source == victim:
                link.reset()
        world.thaw(victim)

    return Harm(f"SIGSTOP {victim}, then compaction", undo)


async def _compact(endpoints: tuple[str, ...]) -> int:
    """Compact at the newest revision; returns it."""
    async with EtcdClient(endpoints) as client:
        revision = (await client.get_prefix(Keys().root, limit=1)).revision
        await client.compact(revision)
        return revision


# Alone: whom it stops another fault may kill, or have killed.
FAULTS: tuple[Fault, ...] = (Fault("compaction", Party.ETCD, 3.0, _begin, alone=True),)
