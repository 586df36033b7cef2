# SPDX-License-Identifier: Apache-2.0
"""A replica's own registration: that it lives, and where. Others rank themselves by it; nothing depends on it."""

from __future__ import annotations

import asyncio
import logging

from ledger.codec import encode
from ledger.etcd import EtcdClient
from ledger.etcd.errors import EtcdError
from ledger.etcd.txn import Put
from ledger.keys import Keys
from ledger.records import Replica

log = logging.getLogger(__name__)

TTL = 5
"""Seconds after which a dead replica is forgotten. A switch does not wait for it: see `coordinator.apply.hedge`."""

_PAUSE = 0.5


class Registration:
    """Keeps ``replicas/<id>`` there, on a lease of its own, for as long as this process lives."""

    def __init__(self, client: EtcdClient, keys: Keys, replica_id: str, record: Replica) -> None:
        self._client = client
        self._key = keys.replica(replica_id)
        self._record = record
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="replica registration")

    async def close(self) -> None:
        """Withdraw it at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                async with await self._client.lease(TTL) as lease:
                    put = Put(self._key, encode(self._record), lease=lease.lease_id)
                    await self._client.txn((), (put,), idempotent=True)
                    await lease.lost.wait()
                log.warning("The registration of this replica was lost; it registers anew.")
            except EtcdError as error:
                log.warning("This replica is not registered: %s", error)
                await asyncio.sleep(_PAUSE)
