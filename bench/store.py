# SPDX-License-Identifier: Apache-2.0
"""One client of etcd for the bench itself, asked from its main thread; times are taken inside its event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from chaos import background
from ledger.etcd import EtcdClient, Event
from ledger.etcd.txn import Put, modified_at

WITHIN = 60.0
_KEY, _VALUE = b"/bench/key", b"x" * 300


class Store:
    """To be closed before etcd ends."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._client, self._other = background.call(_clients(endpoints), WITHIN)
        self._mod = background.call(self._client.put(_KEY, _VALUE), WITHIN).header.revision
        self._seen: asyncio.Queue[tuple[int, float]] = asyncio.Queue()
        self._following = background.begin(self._follow(self._mod + 1))

    def revision(self) -> int:
        return background.call(self._client.get_prefix(_KEY, limit=1), WITHIN).revision

    def bare(self) -> float:
        """Seconds of a transaction of one compare and one put of 300 bytes."""
        return background.call(self._bare(), WITHIN)[0]

    def delivery(self) -> float:
        """Seconds from sending such a transaction until a watch of another connection has brought it."""
        return background.call(self._delivery(), WITHIN)

    def history(self, prefix: str, since: int) -> list[Event]:
        """All events under ``prefix`` from revision ``since`` on."""
        return background.call(self._history(prefix.encode(), since), WITHIN)

    def count(self, prefix: str) -> int:
        """How many keys there are under it."""
        return background.call(self._client.get_prefix(prefix.encode(), keys_only=True), WITHIN).count

    def wait_count(self, prefix: str, count: int) -> None:
        """Wait until there are so many. Raises TimeoutError."""
        background.call(self._wait_count(prefix.encode(), count), WITHIN)

    def delete(self, prefix: str) -> None:
        background.call(self._client.delete_prefix(prefix.encode()), WITHIN)

    def close(self) -> None:
        self._following.cancel()
        background.call(self._client.close(), WITHIN)
        background.call(self._other.close(), WITHIN)

    async def _bare(self) -> tuple[float, float]:
        began = time.perf_counter()
        result = await self._client.txn([modified_at(_KEY, self._mod)], [Put(_KEY, _VALUE)])
        took = time.perf_counter() - began
        self._mod = result.revision
        return took, began

    async def _delivery(self) -> float:
        while not self._seen.empty():
            self._seen.get_nowait()
        _, began = await self._bare()
        while True:
            revision, at = await self._seen.get()
            if revision == self._mod:
                return at - began

    async def _follow(self, start: int) -> None:
        async with self._other.watch(_KEY, start) as batches:
            async for batch in batches:
                self._seen.put_nowait((batch.revision, time.perf_counter()))

    async def _wait_count(self, prefix: bytes, count: int) -> None:
        found = await self._client.get_prefix(prefix, keys_only=True)
        async with self._client.watch(prefix, found.revision + 1) as batches:
            while found.count < count:
                await anext(batches)
                found = await self._client.get_prefix(prefix, keys_only=True)

    async def _history(self, prefix: bytes, since: int) -> list[Event]:
        now = (await self._client.get_prefix(prefix, limit=1)).revision
        found: list[Event] = []
        if now < since:
            return found
        # What is put under the key of the bench itself ends the wait, whatever the last event under the prefix was.
        last = (await self._client.put(_KEY, _VALUE)).header.revision
        self._mod = last
        async with self._client.watch(b"/", since) as batches:
            async for batch in batches:
                found += [event for event in batch.events if event.kv.key.startswith(prefix)]
                if batch.revision >= last:
                    return found
        return found


async def _clients(endpoints: Sequence[str]) -> tuple[EtcdClient, EtcdClient]:
    return EtcdClient(endpoints), EtcdClient(endpoints)
