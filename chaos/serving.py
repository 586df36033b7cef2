# SPDX-License-Identifier: Apache-2.0
"""Which replica does what at the moment, by etcd: who would write the next step, and who has which job's session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chaos import background
from chaos.world import World
from coordinator.apply.hedge import rank
from ledger.codec import decode
from ledger.etcd import EtcdClient
from ledger.keys import Keys
from ledger.records import Replica, Session

_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Serving:
    """Names of replicas as the `World` has them.

    Attributes:
        first: who ranks first for the group of those that live.
        sessions: by job, who serves its session.
    """

    first: str
    sessions: Mapping[str, str]

    def of(self, replica: str) -> frozenset[str]:
        """The jobs whose sessions it serves."""
        return frozenset(job for job, served_by in self.sessions.items() if served_by == replica)


def serving(world: World) -> Serving:
    """As it is in etcd now. Raises EtcdError, or TimeoutError after 30 s."""
    return background.call(_serving(world), _SECONDS)


async def _serving(world: World) -> Serving:
    keys = Keys()
    async with EtcdClient(world.etcd.endpoints) as client:
        replicas = (await client.get_prefix(keys.replica(""))).kvs
        sessions = (await client.get_prefix(keys.session(""))).kvs
    names: dict[str, str] = {}  # by id; of those that have died too
    newest: dict[str, str] = {}  # by name: the id of who serves under it now
    for kv in sorted(replicas, key=lambda one: one.create_revision):
        place = keys.place(kv.key)
        if place is not None:
            name = f"replica{world.endpoints.index(decode(Replica, kv.value).address)}"
            names[place.name], newest[name] = name, place.name
    alive = {one: name for name, one in newest.items() if world.pid(name) is not None}
    first = min(alive, key=lambda one: rank(one, alive, world.group))
    jobs = {world.pid(job): job for job in world.jobs}
    records = [decode(Session, kv.value) for kv in sessions]
    served = {
        jobs[one.process.pid]: names.get(one.replica, "")
        for one in records
        if one.process is not None and one.process.pid in jobs
    }
    return Serving(alive[first], served)
