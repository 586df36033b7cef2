# SPDX-License-Identifier: Apache-2.0
"""Group commit in virtual time: whatever goes together is what it is one after the other, in either order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ledger.etcd import GroupCommit, KeyValue, TxnResult
from ledger.etcd.errors import DeadlineExceeded
from ledger.etcd.txn import Compare, Delete, Get, Op, Put, Txn, absent, exists, modified_at, prefix_empty
from tests.property.fake_etcd import FakeClient, FakeStore
from tests.property.virtual_time import VirtualLoop

_KEYS = st.sampled_from([b"a", b"a/1", b"a/2", b"b", b"b/1", b"c"])
_RANGES = st.sampled_from([(b"a", b"b"), (b"a/", b"a0"), (b"b", b"\0"), (b"a/2", b"b/")])
_COMPARES: st.SearchStrategy[Compare] = st.one_of(
    st.builds(absent, _KEYS),
    st.builds(exists, _KEYS),
    st.builds(modified_at, _KEYS, st.integers(1, 8)),
    st.builds(prefix_empty, st.sampled_from([b"a/", b"b", b"c"])),
)
_READS = st.one_of(st.builds(Get, _KEYS), st.builds(lambda span: Get(*span), _RANGES))
_WRITES: st.SearchStrategy[Op] = st.one_of(
    st.builds(Put, _KEYS, st.binary(max_size=2)),
    st.builds(Delete, _KEYS),
    st.builds(lambda span: Delete(*span), _RANGES),
)
_BRANCH = st.lists(st.one_of(_WRITES, _READS), max_size=2, unique_by=lambda op: op.key)
_TXNS = st.builds(Txn, st.lists(_COMPARES, max_size=2), _BRANCH, st.lists(_READS, max_size=1))


class _Recorded(FakeClient):
    """Notes what was there before each request, and what went in it."""

    def __init__(self, store: FakeStore) -> None:
        super().__init__(store)
        self.sent: list[tuple[dict[bytes, KeyValue], int, tuple[Txn, ...], tuple[TxnResult, ...]]] = []

    async def txns(
        self, each: Sequence[Txn], *, idempotent: bool = False, timeout: float | None = None
    ) -> tuple[TxnResult, ...]:
        await self._travel()
        before, revision = dict(self.store.kvs), self.store.revision
        results = self.store.txns(each)
        self.sent.append((before, revision, tuple(each), results))
        return results


def _values(kvs: dict[bytes, KeyValue]) -> dict[bytes, bytes]:
    return {key: kv.value for key, kv in kvs.items()}


def _one_by_one(before: dict[bytes, KeyValue], revision: int, txns: Sequence[Txn]) -> tuple[list[object], object]:
    """What each says (but for revisions), and what is there in the end."""
    store = FakeStore()
    store.kvs, store.revision = dict(before), revision
    return [_said(store.txn(one.compares, one.success, one.failure)) for one in txns], _values(store.kvs)


def _said(result: TxnResult) -> object:
    reads = [[(kv.key, kv.value) for kv in one.kvs] for one in result.responses if hasattr(one, "kvs")]
    return result.succeeded, reads, [getattr(one, "deleted", None) for one in result.responses]


async def _all_at_once(commit: GroupCommit, txns: Sequence[Txn]) -> list[TxnResult]:
    return await asyncio.gather(*(commit.txn(one.compares, one.success, one.failure) for one in txns))


@settings(max_examples=150)
@given(st.lists(_TXNS, min_size=3, max_size=8), st.integers(1, 2))
def test_what_goes_together_is_what_it_is_one_after_the_other(txns: list[Txn], in_flight: int) -> None:
    loop, store = VirtualLoop(), FakeStore()
    try:
        for key in (b"a", b"a/1", b"b"):
            store.put(key, b"0")
        client = loop.work(_made(store))
        answers = loop.work(_all_at_once(GroupCommit(client, in_flight=in_flight), txns))
        sent = [
            (id(one.compares), result)
            for _, _, each, results in client.sent
            for one, result in zip(each, results, strict=True)
        ]
        assert len(sent) == len(txns), "each is sent once"
        assert answers == [dict(sent)[id(one.compares)] for one in txns], "each has its own answer"
        for index, (before, revision, each, results) in enumerate(client.sent):
            said = [_said(one) for one in results]
            after = _values(client.sent[index + 1][0] if index + 1 < len(client.sent) else store.kvs)
            assert (said, after) == _one_by_one(before, revision, each)
            assert (said[::-1], after) == _one_by_one(before, revision, each[::-1])
    finally:
        loop.close()


async def _made(store: FakeStore) -> _Recorded:
    return _Recorded(store)


def test_the_sooner_deadline_does_not_cut_the_later_one_short() -> None:
    loop, store = VirtualLoop(), FakeStore()
    try:
        client = loop.work(_made(store))
        loop.work(_deadlines(client, GroupCommit(client)))
    finally:
        loop.close()


async def _deadlines(client: _Recorded, commit: GroupCommit) -> None:
    client.slow = 1.0
    first = asyncio.create_task(commit.txn([], [Put(b"first", b"")]))
    await asyncio.sleep(0)
    never_sent = asyncio.create_task(commit.txn([], [Put(b"never", b"")], timeout=0.5))
    sent = asyncio.create_task(commit.txn([], [Put(b"sent", b"")], timeout=1.5))
    patient = asyncio.create_task(commit.txn([], [Put(b"patient", b"")], timeout=2.5))
    for task, ambiguous in ((never_sent, False), (sent, True)):
        with pytest.raises(DeadlineExceeded) as caught:
            await task
        assert caught.value.ambiguous is ambiguous
    assert (await patient).succeeded
    assert (await first).succeeded
    assert set(client.store.kvs) == {b"first", b"sent", b"patient"}
