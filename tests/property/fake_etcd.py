# SPDX-License-Identifier: Apache-2.0
"""An etcd in memory, and clients of it whose connection a schedule holds back, cuts and heals.

The store applies a transaction at once and whole, as one revision; it can be compacted, set back to an earlier state,
and end leases. Only what the system uses of it is there.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

from ledger.etcd.errors import ClusterChanged, Compacted, InvalidRequest, KeyNotFound, LeaseNotFound, Unavailable
from ledger.etcd.records import (
    DeleteResult,
    Event,
    EventType,
    Header,
    KeyValue,
    OpResult,
    PutResult,
    RangeResult,
    TxnResult,
    WatchBatch,
)
from ledger.etcd.txn import Compare, Delete, Get, Is, Of, Op, Put, Txn, prefix_end

_IS: dict[Is, Callable[[int, int], bool]] = {
    Is.EQUAL: lambda a, b: a == b,
    Is.NOT_EQUAL: lambda a, b: a != b,
    Is.LESS: lambda a, b: a < b,
    Is.GREATER: lambda a, b: a > b,
}


class FakeStore:
    """What etcd's members agree on.

    Attributes:
        states: what was there at each revision, of this cluster.
        listeners: told of each change.
    """

    def __init__(self) -> None:
        self.cluster_id = 1
        self.revision = 1
        self.compacted = 0
        self.kvs: dict[bytes, KeyValue] = {}
        self.states: dict[int, dict[bytes, KeyValue]] = {1: {}}
        self.history: list[tuple[int, tuple[Event, ...]]] = []
        self.leases: set[int] = set()
        self.listeners: list[Callable[[], None]] = []

    @property
    def header(self) -> Header:
        return Header(self.cluster_id, 1, self.revision, 1)

    def txn(self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()) -> TxnResult:
        """Raises LeaseNotFound, KeyNotFound: nothing was done."""
        (result,) = self.txns((Txn(compares, success, failure),))
        return result

    def txns(self, each: Sequence[Txn]) -> tuple[TxnResult, ...]:
        """In one request, as etcd has it: all comparisons first. Raises LeaseNotFound, KeyNotFound, InvalidRequest."""
        puts = [{op.key for op in (*one.success, *one.failure) if isinstance(op, Put)} for one in each]
        if sum(map(len, puts)) > len(set[bytes]().union(*puts)):
            raise InvalidRequest("duplicate key given in txn request")
        holds = [all(self._holds(compare) for compare in one.compares) for one in each]
        branches = [one.success if held else one.failure for one, held in zip(each, holds, strict=True)]
        for op in itertools.chain(*branches):
            if isinstance(op, Put) and op.lease and op.lease not in self.leases:
                raise LeaseNotFound("no such lease")
            if isinstance(op, Put) and op.ignore_lease and op.key not in self.kvs:
                raise KeyNotFound("key not found")
        events: list[Event] = []
        done = [[self._apply(op, events) for op in branch] for branch in branches]
        self._written(events)
        answers = [tuple(PutResult(self.header) if isinstance(one, PutResult) else one for one in ops) for ops in done]
        return tuple(TxnResult(self.header, held, ops) for held, ops in zip(holds, answers, strict=True))

    def put(self, key: bytes, value: bytes, lease: int = 0) -> int:
        self.txn((), (Put(key, value, lease),))
        return self.revision

    def end_lease(self, lease: int) -> None:
        if lease in self.leases:
            self.leases.remove(lease)
            events: list[Event] = []
            for key in [key for key, kv in self.kvs.items() if kv.lease == lease]:
                self._apply(Delete(key), events)
            self._written(events)

    def range(self, key: bytes, end: bytes = b"") -> list[KeyValue]:
        if not end:
            return [self.kvs[key]] if key in self.kvs else []
        return [self.kvs[one] for one in sorted(self.kvs) if one >= key and (end == b"\0" or one < end)]

    def compact(self) -> None:
        """Forget how it came to be what it is now."""
        self.compacted = self.revision
        self.history = []

    def restore(self, revision: int, *, another_cluster: bool) -> None:
        """Be as at that revision, as after a restore from a backup."""
        self.cluster_id += another_cluster
        self.revision = revision
        self.kvs = dict(self.states[revision])
        self.states = {one: state for one, state in self.states.items() if one <= revision}
        self.history, self.compacted = [], revision
        self._tell()

    def _holds(self, compare: Compare) -> bool:
        found = self.range(compare.key, compare.range_end)
        test = _IS[compare.is_]
        numbers = [_number(kv, compare.of) for kv in found] or [0]
        return all(test(number, compare.number) for number in numbers)

    def _apply(self, op: Op, events: list[Event]) -> OpResult:
        match op:
            case Get():
                kvs = self.range(op.key, op.range_end)
                return RangeResult(self.header, tuple(kvs), len(kvs), more=False)
            case Put():
                old = self.kvs.get(op.key)
                lease = old.lease if op.ignore_lease and old else op.lease
                create, version = (old.create_revision, old.version + 1) if old else (self.revision + 1, 1)
                kv = KeyValue(op.key, op.value, create, self.revision + 1, version, lease)
                self.kvs[op.key] = kv
                events.append(Event(EventType.PUT, kv, None))
                return PutResult(self.header)
            case Delete():
                gone = self.range(op.key, op.range_end)
                for kv in gone:
                    del self.kvs[kv.key]
                    events.append(Event(EventType.DELETE, KeyValue(kv.key, b"", 0, self.revision + 1, 0, 0), None))
                return DeleteResult(self.header, len(gone))

    def _written(self, events: Sequence[Event]) -> None:
        if events:
            self.revision += 1
            self.history.append((self.revision, tuple(events)))
            self.states[self.revision] = dict(self.kvs)
            self._tell()

    def _tell(self) -> None:
        for listener in self.listeners:
            listener()


class FakeClient:
    """One process's client.

    Attributes:
        timeout: of a call that names none, in seconds.
        away: every request fails, and watches are silent; see `cut`.
        slow: seconds that a request takes to arrive.
        ahead: how many more revisions its watches deliver; None: all.
        spoil: what becomes of the next transaction: its answer is lost, whether or not it was applied; None: nothing.
    """

    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.timeout = 5.0
        self.away = False
        self.slow = 0.001
        self.ahead: int | None = None
        self.spoil: bool | None = None
        self._moved = asyncio.Event()
        self._watches: set[FakeWatch] = set()
        store.listeners.append(self.move)

    def move(self) -> None:
        """Something has changed: whoever waits looks again."""
        self._moved.set()
        self._moved = asyncio.Event()

    def cut(self, away: bool) -> None:
        """Cut the connection, or heal it: watches that live through it go on where they were."""
        if away and not self.away:
            for watch in self._watches:
                watch.breaks += 1
        self.away = away
        self.move()

    def break_watches(self, error: Exception) -> None:
        """End all watches, with a cause by which they cannot go on."""
        for watch in self._watches:
            watch.error = error
            watch.breaks += 1
        self.move()

    async def moved(self) -> None:
        await self._moved.wait()

    async def get_prefix(self, prefix: bytes, *, limit: int = 0) -> RangeResult:
        await self._travel()
        kvs = self.store.range(prefix or b"\0", prefix_end(prefix))
        found = kvs[:limit] if limit else kvs
        return RangeResult(self.store.header, tuple(found), len(kvs), more=len(found) < len(kvs))

    async def txn(
        self,
        compares: Sequence[Compare],
        success: Sequence[Op],
        failure: Sequence[Op] = (),
        *,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> TxnResult:
        (result,) = await self.txns((Txn(compares, success, failure),), idempotent=idempotent, timeout=timeout)
        return result

    async def txns(
        self, each: Sequence[Txn], *, idempotent: bool = False, timeout: float | None = None
    ) -> tuple[TxnResult, ...]:
        await self._travel()
        spoil, self.spoil = self.spoil, None
        if spoil is False:
            raise Unavailable("the connection broke", ambiguous=True)
        results = self.store.txns(each)
        if spoil:
            raise Unavailable("the connection broke", ambiguous=True)
        return results

    def watch(
        self, prefix: bytes, start: int, *, cluster_id: int, deliver: Callable[[WatchBatch], Awaitable[None]]
    ) -> FakeWatch:
        return FakeWatch(self, prefix, start, cluster_id, deliver)

    async def _travel(self) -> None:
        await asyncio.sleep(self.slow)
        if self.away:
            raise Unavailable("no member answers", ambiguous=False)


class FakeWatch:
    """Delivers every change from ``start`` on, in order, in whole revisions; or ends with an error."""

    def __init__(
        self,
        client: FakeClient,
        prefix: bytes,
        start: int,
        cluster_id: int,
        deliver: Callable[[WatchBatch], Awaitable[None]],
    ) -> None:
        self._deliver = deliver
        self.error: Exception | None = None
        self.breaks = 0
        self._client, self._prefix, self._next, self._cluster_id = client, prefix, start, cluster_id

    @property
    def live(self) -> bool:
        return self.error is None and not self._client.away

    async def __aenter__(self) -> Self:
        if self._client.away:
            raise Unavailable("no member answers", ambiguous=False)
        self._client._watches.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client._watches.discard(self)

    async def ended(self) -> None:
        while True:
            if self.error is not None:
                raise self.error
            batch = None if self._client.away else self._batch()
            if batch is not None:
                await self._deliver(batch)
            else:
                await self._client.moved()

    def _batch(self) -> WatchBatch | None:
        store, ahead = self._client.store, self._client.ahead
        if store.cluster_id != self._cluster_id:
            raise ClusterChanged("another cluster answers")
        if self._next <= store.compacted and self._next <= store.revision:
            raise Compacted("compacted")
        due = [one for one in store.history if one[0] >= self._next][:ahead]
        if not due:
            return None
        if ahead is not None:
            self._client.ahead = ahead - len(due)
        self._next = due[-1][0] + 1
        events = tuple(event for _, each in due for event in each if event.kv.key.startswith(self._prefix))
        return WatchBatch(store.header, due[-1][0], events)


def _number(kv: KeyValue, of: Of) -> int:
    match of:
        case Of.CREATE_REVISION:
            return kv.create_revision
        case Of.MOD_REVISION:
            return kv.mod_revision
        case Of.LEASE:
            return kv.lease
