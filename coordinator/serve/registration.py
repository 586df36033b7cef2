# SPDX-License-Identifier: Apache-2.0
"""A replica's own key: while it is there, the others know that it serves and ranks among them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from random import Random

from ledger.codec import decode, encode
from ledger.errors import LedgerError
from ledger.etcd import EtcdClient, OwnedLease
from ledger.etcd.errors import EtcdError
from ledger.etcd.txn import Put, absent
from ledger.keys import Keys
from ledger.records import Replica

log = logging.getLogger(__name__)

TTL = 10
"""Seconds after which a replica that has died is known to be gone."""

_PAUSE = 1.0
_LOOK_EVERY = 1.0
_OTHERS_END = TTL + 2.0  # s; in which one that is gone is known to be


class ReplicaIdTaken(Exception):
    """Another replica has that name and lives. Both would end the sessions of the other's clients."""

    def __init__(self, replica_id: str, address: str) -> None:
        super().__init__(
            f"replica {replica_id} is running already, at {address}. "
            "Give each a --replica-id of its own, or leave it out."
        )


class Registration:
    """Keeps ``replicas/<id>`` on a lease of its own; makes it anew when that lease, or the key alone, has been lost.

    Args:
        is_gone: whether the replica's view shows that its key is not there.
    """

    def __init__(
        self, client: EtcdClient, keys: Keys, replica_id: str, replica: Replica, is_gone: Callable[[], bool]
    ) -> None:
        self._client = client
        self._id, self._replica, self._is_gone = replica_id, replica, is_gone
        self._put_at = keys.replica(replica_id)
        self._value = encode(replica)
        self._random = Random()
        self._lease: OwnedLease | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register. Raises EtcdError, ReplicaIdTaken."""
        await self._wait_for_another()
        self._lease = await self._register()
        self._task = asyncio.create_task(self._keep(self._lease), name="registration of the replica")

    async def close(self) -> None:
        """Deregister: the others serve its groups from now on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._lease is not None:
            await self._lease.close()

    async def _wait_for_another(self) -> None:
        """Its own former life listened where it does; whoever listens elsewhere has to be gone."""
        until = time.monotonic() + _OTHERS_END
        while (kv := await self._client.get(self._put_at)) is not None and kv.lease:
            try:
                other = decode(Replica, kv.value)
            except LedgerError:
                return
            if other.address == self._replica.address:
                return
            if time.monotonic() >= until:
                raise ReplicaIdTaken(self._id, other.address)
            await asyncio.sleep(_LOOK_EVERY)

    async def _register(self) -> OwnedLease:
        lease = await self._client.lease(TTL)
        await self._client.txn([], [Put(self._put_at, self._value, lease=lease.lease_id)], idempotent=True)
        return lease

    async def _lost(self, lease: OwnedLease) -> None:
        """Until the lease is lost. If the key alone is, it is put there again: the others believe the key."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(lease.lost.wait(), _LOOK_EVERY)
                return
            if not self._is_gone():
                continue
            with contextlib.suppress(EtcdError):
                put = Put(self._put_at, self._value, lease=lease.lease_id)
                if (await self._client.txn([absent(self._put_at)], [put], idempotent=True)).succeeded:
                    log.warning("The registration of this replica was deleted; it is there again.")

    async def _keep(self, lease: OwnedLease) -> None:
        while True:
            await self._lost(lease)
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
