# SPDX-License-Identifier: Apache-2.0
"""A replica's own key: while it is there, the others know that it serves and ranks among them."""

from __future__ import annotations

import asyncio
import logging
from random import Random

from ledger.codec import encode
from ledger.etcd import EtcdClient, OwnedLease
from ledger.etcd.errors import EtcdError
from ledger.etcd.txn import Put
from ledger.keys import Keys
from ledger.records import Replica

log = logging.getLogger(__name__)

TTL = 10
"""Seconds after which a replica that has died is known to be gone."""

_PAUSE = 1.0


class Registration:
    """Keeps ``replicas/<id>`` on a lease of its own; makes it anew when that lease has been lost."""

    def __init__(self, client: EtcdClient, keys: Keys, replica_id: str, replica: Replica) -> None:
        self._client = client
        self._put_at = keys.replica(replica_id)
        self._value = encode(replica)
        self._random = Random()
        self._lease: OwnedLease | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register. Raises EtcdError."""
        self._lease = await self._register()
        self._task = asyncio.create_task(self._keep(self._lease), name="registration of the replica")

    async def close(self) -> None:
        """Deregister: the others serve its groups from now on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._lease is not None:
            await self._lease.close()

    async def _register(self) -> OwnedLease:
        lease = await self._client.lease(TTL)
        await self._client.txn([], [Put(self._put_at, self._value, lease=lease.lease_id)], idempotent=True)
        return lease

    async def _keep(self, lease: OwnedLease) -> None:
        while True:
            await lease.lost.wait()
            log.warning("The registration of this replica is lost; it registers anew.")
            await lease.close(revoke=False)
            while True:
                try:
                    lease = self._lease = await self._register()
                    break
                except EtcdError as error:
                    pause = _PAUSE * self._random.uniform(0.5, 1.5)
                    log.warning("Registering failed and is tried again in %.1f s: %s", pause, error)
                    await asyncio.sleep(pause)
