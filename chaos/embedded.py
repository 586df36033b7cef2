# SPDX-License-Identifier: Apache-2.0
"""The whole system on one machine, for other people's tests: what `tsclient.testing` finds by its entry point."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Self

from chaos import background
from chaos.world import Shape, World
from ledger.codec import decode
from ledger.etcd import EtcdClient
from ledger.keys import Keys
from ledger.records import Ticket

_SECONDS = 30.0


class EmbeddedSystem:
    """A real etcd, coordinators, an agent and simulated devices as processes; they end with this one.

    Attributes:
        endpoints: of the coordinators.
        group: there from the start, with all devices.

    Args:
        replicas: coordinators.
        devices: in the group.
    """

    def __init__(self, *, group: str, replicas: int, devices: int) -> None:
        self.group = group
        self._world = World(group=group, replicas=replicas, shape=Shape(devices=devices))
        self._replicas = [f"replica{index}" for index in range(replicas)]

    @property
    def endpoints(self) -> tuple[str, ...]:
        return self._world.endpoints

    def __enter__(self) -> Self:
        self._world.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._world.close()

    def expire_session(self, job: str | None) -> int:
        """End the session that the job's ticket is of; None: all sessions. How many have ended."""
        return background.call(self._expire(job), _SECONDS)

    @contextlib.contextmanager
    def freeze(self) -> Iterator[None]:
        """In the block no coordinator answers, and all connections stay."""
        for name in self._replicas:
            self._world.freeze(name)
        try:
            yield
        finally:
            for name in self._replicas:
                self._world.thaw(name)

    @contextlib.contextmanager
    def lose_connection(self) -> Iterator[None]:
        """In the block all connections are broken, and none can be made."""
        for name in self._replicas:
            self._world.kill(name)
        try:
            yield
        finally:
            for name in self._replicas:
                self._world.restart(name)

    async def _expire(self, job: str | None) -> int:
        keys = Keys()
        async with EtcdClient(self._world.etcd.endpoints) as client:
            if job is None:
                found = (await client.get_prefix(keys.session(""))).kvs
            else:
                ticket = await client.get(keys.ticket(self.group, job))
                kept = None if ticket is None else await client.get(keys.session(decode(Ticket, ticket.value).session))
                found = () if kept is None else (kept,)
            return sum([await client.revoke(kv.lease) for kv in found])
