# SPDX-License-Identifier: Apache-2.0
"""Group commit: transactions that are wanted while others are in flight go together, as one request to etcd.

One message, one proposal to the members, one revision and one answer to every watch, where it would be one each. Each
keeps its own compares, branches, answer and deadline, and no transaction waits where none is in flight.

etcd makes the comparisons of all before it carries out any, and takes a put and a delete of one key without a word. So
two go together only where none writes what the other compares, reads or writes: then what they do together is what they
do one after the other, in either order. Keys that two of them create have one create revision.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ledger.etcd.errors import DeadlineExceeded, EtcdError, InvalidRequest, KeyNotFound, LeaseNotFound, PermissionDenied
from ledger.etcd.records import TxnResult
from ledger.etcd.txn import SIDE_BY_SIDE, WIDEST_BESIDE, Compare, Get, Op, Put, Txn

IN_FLIGHT = 1
"""Requests on their way at once; what is wanted beyond them waits and goes together."""

_MOST_BYTES = 256 << 10
"""Values that go together: well below etcd's 1.5 MiB for a request."""

_FOR_ONES_SAKE = (LeaseNotFound, KeyNotFound, InvalidRequest, PermissionDenied)
"""Refusals of a whole request for what one transaction in it asks; nothing of it was done."""


class Client(Protocol):
    """What is used of `ledger.etcd.EtcdClient`."""

    @property
    def timeout(self) -> float:
        """Seconds for a call that names none."""

    async def txn(
        self,
        compares: Sequence[Compare],
        success: Sequence[Op],
        failure: Sequence[Op] = (),
        *,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> TxnResult:
        """One transaction."""

    async def txns(self, each: Sequence[Txn], *, idempotent: bool = False, timeout: float) -> tuple[TxnResult, ...]:
        """Several in one request."""


class GroupCommit:
    """Sends transactions, those that come while others are in flight together.

    Args:
        client: of etcd. Who closes it ends what is in flight and what waits, with `Closed`.
        in_flight: requests that may be on their way at once.
    """

    def __init__(self, client: Client, *, in_flight: int = IN_FLIGHT) -> None:
        self._client = client
        self._most = in_flight
        self._in_flight = 0
        self._waiting: deque[_Waiting] = deque()
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> bool:
        """Nothing is on its way, and nothing waits for it."""
        return not self._in_flight and not self._waiting

    async def txn(
        self,
        compares: Sequence[Compare],
        success: Sequence[Op],
        failure: Sequence[Op] = (),
        *,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> TxnResult:
        """As `EtcdClient.txn`, errors included; the revision of the answer may be that of others, too.

        Raises:
            DeadlineExceeded: the time allowed has passed, the wait for others included. It is ambiguous only if the
                transaction has been sent.
        """
        if self._in_flight < self._most and not self._waiting:
            self._in_flight += 1
            try:
                return await self._client.txn(compares, success, failure, idempotent=idempotent, timeout=timeout)
            finally:
                self._ended()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._client.timeout if timeout is None else timeout)
        waiting = _Waiting(Txn(compares, success, failure), idempotent, deadline, loop.create_future())
        self._waiting.append(waiting)
        timer = loop.call_at(deadline, waiting.too_late)
        try:
            return await waiting.answer
        finally:
            timer.cancel()

    def _ended(self) -> None:
        self._in_flight -= 1
        while self._waiting and self._in_flight < self._most and (batch := self._gather()):
            self._in_flight += 1
            task = asyncio.get_running_loop().create_task(self._send(batch), name="transactions together")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    def _gather(self) -> list[_Waiting]:
        """Take the oldest that waits, and who may go with it. Who may not is the oldest next."""
        batch: list[_Waiting] = []
        together, size = _Touched(), 0
        left: list[_Waiting] = []
        while self._waiting and len(batch) < SIDE_BY_SIDE:
            one = self._waiting.popleft()
            if one.answer.done():
                continue  # cancelled, or too late
            if batch and not (one.may_go_with(batch[0], together) and size + one.size <= _MOST_BYTES):
                left.append(one)
                continue
            batch.append(one)
            together.add(one.touched)
            size += one.size
        self._waiting.extendleft(reversed(left))
        return batch

    async def _send(self, batch: Sequence[_Waiting]) -> None:
        try:
            for one, result in zip(batch, await self._carry_out(batch), strict=True):
                if not one.answer.done():
                    one.answer.set_result(result)
        except EtcdError as error:
            self._failed(batch, error)
        except BaseException as error:
            # The end of the program, or a fault of it: nobody may wait for an answer that does not come.
            self._failed(batch, EtcdError(f"the transactions were not carried to their end: {error!r}"))
            raise
        finally:
            self._ended()

    async def _carry_out(self, batch: Sequence[_Waiting]) -> Sequence[TxnResult]:
        now = asyncio.get_running_loop().time()
        for one in batch:
            one.sent = True
        # Whose time is up sooner is told so by its own timer: nobody's deadline cuts another's short.
        left = max(one.deadline for one in batch) - now
        idempotent = batch[0].idempotent
        if len(batch) > 1:
            return await self._client.txns([one.txn for one in batch], idempotent=idempotent, timeout=left)
        txn = batch[0].txn
        return [
            await self._client.txn(txn.compares, txn.success, txn.failure, idempotent=idempotent, timeout=left),
        ]

    def _failed(self, batch: Sequence[_Waiting], error: EtcdError) -> None:
        """Let the one at fault alone have the refusal: each goes again by itself. Any other error is everybody's."""
        if len(batch) > 1 and isinstance(error, _FOR_ONES_SAKE) and not error.resent:
            for one in reversed(batch):
                one.alone, one.sent = True, False
                self._waiting.appendleft(one)
            return
        for one in batch:
            if not one.answer.done():
                one.answer.set_exception(error)


class _Keys:
    """A set of keys and ranges of keys."""

    __slots__ = ("keys", "ranges")

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self.ranges: list[tuple[bytes, bytes]] = []

    def add(self, key: bytes, range_end: bytes) -> None:
        if range_end:
            self.ranges.append((key, range_end))
        else:
            self.keys.add(key)

    def update(self, other: _Keys) -> None:
        self.keys |= other.keys
        self.ranges += other.ranges

    def meets(self, other: _Keys) -> bool:
        """Whether one key is in both."""
        if not self.keys.isdisjoint(other.keys):
            return True
        if not self.ranges and not other.ranges:
            return False
        return (
            any(start <= key and _before(key, end) for start, end in self.ranges for key in other.keys)
            or any(start <= key and _before(key, end) for start, end in other.ranges for key in self.keys)
            or any(_before(a, d) and _before(c, b) for a, b in self.ranges for c, d in other.ranges)
        )


def _before(key: bytes, end: bytes) -> bool:
    """Whether the range that ends there may have the key; ``end`` is b"\\0" where a range has no end."""
    return end == b"\0" or key < end


class _Touched:
    """What transactions write, and what they compare or read."""

    __slots__ = ("seen", "written")

    def __init__(self) -> None:
        self.written, self.seen = _Keys(), _Keys()

    @classmethod
    def of(cls, txn: Txn) -> _Touched:
        touched = cls()
        for compare in txn.compares:
            touched.seen.add(compare.key, compare.range_end)
        for op in (*txn.success, *txn.failure):
            match op:
                case Get(key, range_end):
                    touched.seen.add(key, range_end)
                case Put(key):
                    touched.written.add(key, b"")
                case _:
                    touched.written.add(op.key, op.range_end)
        return touched

    def add(self, other: _Touched) -> None:
        self.written.update(other.written)
        self.seen.update(other.seen)

    def disturbs(self, other: _Touched) -> bool:
        """Whether one of the two writes what the other writes, compares or reads."""
        return self.written.meets(other.written) or self.written.meets(other.seen) or self.seen.meets(other.written)


@dataclass(slots=True, eq=False)
class _Waiting:
    """One transaction on its way to etcd.

    Attributes:
        deadline: by the event loop's clock.
        sent: it may have been applied.
        alone: it must not go with others, since it may be what they were refused for.
        touched, size: its keys, and the bytes of its values.
    """

    txn: Txn
    idempotent: bool
    deadline: float
    answer: asyncio.Future[TxnResult]
    sent: bool = False
    alone: bool = False
    touched: _Touched = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        txn = self.txn
        self.touched = _Touched.of(txn)
        self.size = sum(len(op.value) for op in (*txn.success, *txn.failure) if isinstance(op, Put))
        self.alone = max(len(txn.compares), len(txn.success), len(txn.failure)) > WIDEST_BESIDE

    def may_go_with(self, first: _Waiting, together: _Touched) -> bool:
        """Whether it may go with ``first`` and all that go with that, which touch ``together``."""
        return (
            not self.alone
            and not first.alone
            and self.idempotent == first.idempotent
            and not self.touched.disturbs(together)
        )

    def too_late(self) -> None:
        """The time allowed has passed."""
        if not self.answer.done():
            error = DeadlineExceeded("the transaction was not answered in the time allowed", ambiguous=self.sent)
            self.answer.set_exception(error)
