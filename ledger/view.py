# SPDX-License-Identifier: Apache-2.0
"""A live copy of a range of etcd: list, watch from that revision, and list again when the watch cannot go on.

One watch for the whole range, whatever the number of those who wait for something in it. The copy survives compaction,
lost members, half-open connections and restarts: after each of them it lists anew and reports only what differs.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Self

from msgspec import Struct
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from ledger.etcd import EtcdClient, EventType, KeyValue, RangeResult, Watch, WatchBatch
from ledger.etcd.errors import EtcdError
from ledger.patience import fulfilled

log = logging.getLogger(__name__)

RESYNC = 300.0
"""Seconds after which the range is listed anew although nothing seems wrong."""

ANSWER_FIRST = 0.005
"""Seconds for which what the watch brings of a key waits for the answer to a write of it, at most."""

AFTERWARDS = 0.002
"""Seconds for which it waits on, where nothing else goes on: until the answer has reached who has asked."""

_PAUSE = 0.05
_PAUSE_MAX = 2.0


class Change(Struct, frozen=True):
    """A key that has changed: its new value, or None when it is gone."""

    key: bytes
    kv: KeyValue | None


class Changes(Struct, frozen=True):
    """What has changed, up to ``revision``.

    Attributes:
        restarted: the store is another one or has been set back to an earlier revision (protocol rule 10): what was
            known before does not count, these changes lead from it to what is there now.
    """

    revision: int
    changes: tuple[Change, ...]
    restarted: bool = False


class LedgerView:
    """Keeps a copy of all keys under ``prefix`` and tells ``listener`` of each change, in order.

    Attributes:
        revision: the copy is that of the store at this revision.
    """

    def __init__(
        self,
        client: EtcdClient,
        prefix: bytes,
        listener: Callable[[Changes], None],
        *,
        resync: float = RESYNC,
        random: Random | None = None,
    ) -> None:
        self.revision = 0
        self._watch: Watch | None = None
        self._client = client
        self._prefix = prefix
        self._listener = listener
        self._resync = resync
        self._random = random or Random()
        self._breaks = 0  # of watches that have ended, and lists that failed
        self._copy: dict[bytes, KeyValue] = {}
        self._cluster_id = 0
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waits = 0
        self._writes: dict[bytes, Writing] = {}
        self._held: Changes | None = None  # what waits for one of them
        self._followed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def live(self) -> bool:
        """The copy is current, as far as this process can know; a silent connection is noticed after 9 s at most."""
        return self._watch is not None and self._watch.live

    @property
    def breaks(self) -> int:
        """How often the copy has stopped being live. A resync, which loses nothing, does not count."""
        return self._breaks + (self._watch.breaks if self._watch is not None else 0)

    async def start(self, within: float) -> None:
        """Begin, and return when the first list is in and a watch goes on from it.

        Raises:
            TimeoutError: etcd did not answer within so many seconds. The view goes on trying until `close`.
        """
        self._task = asyncio.create_task(self._run(), name="ledger view")
        async with asyncio.timeout(within):
            await self._followed.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def reached(self, revision: int, within: float) -> None:
        """Wait until the copy is at least as new as ``revision``.

        Raises:
            TimeoutError: it was not within so many seconds.
        """
        if self.revision >= revision:
            return
        self.settle()
        if self.revision >= revision:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits += 1
        heapq.heappush(self._waiters, (revision, self._waits, future))
        await fulfilled(future, within)

    def settle(self) -> None:
        """Somebody is about to look: tell what the watch has brought, whoever waits for an answer."""
        for write in tuple(self._writes.values()):
            write.end()
        with contextlib.suppress(Exception):  # who follows the watch is to take it again, and to say what failed
            self._take_held()

    def writing(self, key: bytes) -> Writing:
        """While the body writes ``key`` and waits for the answer, the change is not told, nor what comes after it.

        etcd's watch is faster than its answer, and to take in a change takes longer than the two are apart: who waits
        for the answer would have it that much later. A hint: `ANSWER_FIRST` is the longest that it holds for, and who
        waits for a revision does not wait for this.
        """
        self.rest_no_longer()
        return Writing(self._writes, key)

    def rest_no_longer(self) -> None:
        """The answers have reached who has asked, or somebody asks anew: what rested for their sake is told."""
        for write in tuple(self._writes.values()):
            if write.rests:
                write.end()

    def keys(self) -> Sequence[bytes]:
        return tuple(self._copy)

    async def _run(self) -> None:
        again = AsyncRetrying(
            # A fault of whoever listens, too: a view that ended for it without a word would leave its process deaf.
            retry=retry_if_exception_type(Exception),
            wait=wait_random_exponential(multiplier=_PAUSE, max=_PAUSE_MAX),
            before_sleep=self._failed,
        )
        while True:
            await again(self._follow)

    def _failed(self, failed: RetryCallState) -> None:
        self._breaks += 1
        error = failed.outcome.exception() if failed.outcome is not None else None
        unforeseen = None if isinstance(error, EtcdError) else error
        log.warning("The view of %s has to begin anew: %s", self._prefix.decode(), error, exc_info=unforeseen)

    async def _follow(self) -> None:
        """List, then watch until the time for a resync has come."""
        listed = await self._client.get_prefix(self._prefix)
        self._take_list(listed)
        start = listed.revision + 1
        cluster = listed.header.cluster_id
        async with self._client.watch(self._prefix, start, cluster_id=cluster, deliver=self._take_batch) as watch:
            self._watch = watch
            self._followed.set()
            try:
                async with asyncio.timeout(self._resync * self._random.uniform(0.8, 1.0)):
                    await watch.ended()
            except TimeoutError:
                return
            finally:
                self._breaks += watch.breaks
                self._watch = self._held = None

    async def _take_batch(self, batch: WatchBatch) -> None:
        changes = [Change(event.kv.key, event.kv if event.type is EventType.PUT else None) for event in batch.events]
        self._held = Changes(batch.revision, tuple(changes))
        for change in changes if self._writes and not self._waiters else ():
            if (write := self._writes.get(change.key)) is not None:
                await write.over(ANSWER_FIRST)
                break
        self._take_held()

    def _take_list(self, listed: RangeResult) -> None:
        header = listed.header
        restarted = bool(self._cluster_id) and (
            header.cluster_id != self._cluster_id or header.revision < self.revision
        )
        if restarted:
            log.error(
                "etcd has been restored or replaced (cluster %x at revision %d, before %x at %d): what was known is "
                "dropped.",
                *(header.cluster_id, header.revision, self._cluster_id, self.revision),
            )
        self._cluster_id = header.cluster_id
        now = {kv.key: kv for kv in listed.kvs}
        gone = [Change(key, None) for key in self._copy if key not in now]
        new = [Change(key, kv) for key, kv in now.items() if self._copy.get(key) != kv]
        self._advance(Changes(header.revision, tuple(gone + new), restarted))

    def _take_held(self) -> None:
        if self._held is not None:
            self._advance(self._held)
            self._held = None

    def _advance(self, changes: Changes) -> None:
        # Before they count as told: what a listener failed to take is told again by the next list.
        self._listener(changes)
        for change in changes.changes:
            if change.kv is None:
                self._copy.pop(change.key, None)
            else:
                self._copy[change.key] = change.kv
        self.revision = changes.revision if changes.restarted else max(self.revision, changes.revision)
        while self._waiters and self._waiters[0][0] <= self.revision:
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)


class Writing:
    """A write that is on its way, for as long as its context lasts. The newest of a key counts.

    Attributes:
        rests: it lasts for a moment more, since nothing is lost by it.
    """

    __slots__ = ("_key", "_over", "_timer", "_writes", "rests")

    def __init__(self, writes: dict[bytes, Writing], key: bytes) -> None:
        self._writes, self._key = writes, key
        self._over: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.rests = False

    def __enter__(self) -> Self:
        self._writes[self._key] = self
        return self

    def __exit__(self, *_: object) -> None:
        if self.rests:
            self._timer = asyncio.get_running_loop().call_later(AFTERWARDS, self.end)
        else:
            self.end()

    def end(self) -> None:
        """Nothing waits for it any more."""
        if self._writes.get(self._key) is self:
            del self._writes[self._key]
        if self._timer is not None:
            self._timer.cancel()
        self._let_go()

    async def over(self, within: float) -> None:
        """Wait for its end, for so many seconds at most. One waits: the view."""
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        timer = loop.call_later(within, self._let_go)
        try:
            await self._over
        finally:
            timer.cancel()

    def _let_go(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
