# SPDX-License-Identifier: Apache-2.0
"""Transactions: guards, leases, and any number of operations as one."""

from __future__ import annotations

import pytest

from ledger.etcd import DeleteResult, EtcdClient, PutResult, RangeResult
from ledger.etcd.errors import InvalidRequest, KeyNotFound, LeaseNotFound, TooLarge
from ledger.etcd.txn import (
    Compare,
    Delete,
    Get,
    Put,
    absent,
    created_at,
    delete_prefix,
    exists,
    get_prefix,
    leased_to,
    modified_at,
    prefix_empty,
    prefix_unmodified_since,
)


async def holds(client: EtcdClient, *compares: Compare) -> bool:
    return (await client.txn(compares, [])).succeeded


async def test_each_guard(client: EtcdClient, prefix: bytes) -> None:
    key = prefix + b"a"
    assert await holds(client, absent(key), modified_at(key, 0), prefix_empty(prefix), leased_to(key, 0))
    assert not await holds(client, exists(key))
    lease = (await client.grant(60)).lease_id
    made = (await client.put(key, b"1", lease=lease)).revision
    changed = (await client.put(key, b"2", ignore_lease=True)).revision
    assert await holds(client, exists(key), created_at(key, made), modified_at(key, changed), leased_to(key, lease))
    for wrong in (
        absent(key), created_at(key, changed), modified_at(key, made), prefix_empty(prefix), leased_to(key, 0),
    ):  # fmt: skip
        assert not await holds(client, wrong)
        assert not await holds(client, exists(key), wrong)
    assert await holds(client, prefix_unmodified_since(prefix, changed))
    assert not await holds(client, prefix_unmodified_since(prefix, made))
    await client.revoke(lease)


async def test_the_branch_taken_is_answered_in_order(client: EtcdClient, prefix: bytes) -> None:
    await client.put(prefix + b"old", b"1")
    result = await client.txn(
        [absent(prefix + b"new")],
        [Put(prefix + b"new", b"2"), get_prefix(prefix), Delete(prefix + b"old"), get_prefix(prefix)],
        [Get(prefix + b"new")],
    )
    assert result.succeeded
    put, before, deleted, after = result.responses
    assert isinstance(put, PutResult)
    assert isinstance(before, RangeResult)
    assert isinstance(deleted, DeleteResult)
    assert isinstance(after, RangeResult)
    assert [kv.value for kv in before] == [b"2", b"1"]
    assert deleted.deleted == 1
    assert [kv.value for kv in after] == [b"2"]
    assert {response.revision for response in result.responses} == {result.revision}

    again = await client.txn([absent(prefix + b"new")], [Put(prefix + b"new", b"3")], [Get(prefix + b"new")])
    assert not again.succeeded
    assert [kv.value for kv in again.responses[0]] == [b"2"]


@pytest.mark.parametrize("count", [127, 128, 129, 4_000, 4_200])
async def test_any_number_of_operations_is_one_transaction(client: EtcdClient, prefix: bytes, count: int) -> None:
    puts = [Put(prefix + b"%05d" % number, b"x") for number in range(count)]
    result = await client.txn([prefix_empty(prefix)], [*puts, get_prefix(prefix, keys_only=True)])
    assert result.succeeded
    assert len(result.responses) == count + 1
    written = await client.get_prefix(prefix)
    assert len(written.kvs) == count
    assert {kv.mod_revision for kv in written} == {result.revision}
    *puts_done, read = result.responses
    assert all(isinstance(done, PutResult) for done in puts_done)
    assert isinstance(read, RangeResult)
    assert read.count == count

    refused = await client.txn([prefix_empty(prefix)], [delete_prefix(prefix)], [Get(put.key) for put in puts])
    assert not refused.succeeded
    assert [response.kvs[0].key for response in refused.responses] == [put.key for put in puts]


async def test_many_operations_fail_as_one(client: EtcdClient, prefix: bytes) -> None:
    puts = [Put(prefix + b"%05d" % number, b"x") for number in range(300)]
    with pytest.raises(LeaseNotFound):
        await client.txn([], [*puts, Put(prefix + b"last", b"x", lease=client.new_lease_id())])
    assert (await client.get_prefix(prefix)).count == 0
    with pytest.raises(InvalidRequest, match="duplicate key"):
        await client.txn([], [*puts, puts[0]])


@pytest.mark.parametrize(("guards", "operations"), [(128, 128), (100, 100), (100, 2_000), (1, 129), (64, 4_096)])
async def test_many_guards_leave_room_for_many_operations(
    client: EtcdClient, prefix: bytes, guards: int, operations: int
) -> None:
    """And are judged before anything is done: no operation makes its own transaction's guard fail."""
    keys = [prefix + b"%05d" % number for number in range(operations)]
    result = await client.txn([absent(key) for key in keys[:guards]], [Put(key, b"") for key in keys])
    assert result.succeeded
    assert len(result.responses) == operations
    result = await client.txn([absent(key) for key in keys[:guards]], [], [Get(key) for key in keys])
    assert not result.succeeded
    assert len(result.responses) == operations


async def test_what_fits_into_no_transaction_is_refused(client: EtcdClient, prefix: bytes) -> None:
    with pytest.raises(TooLarge, match="129 compares"):
        await client.txn([absent(prefix)] * 129, [])
    assert client.requests["txn"] == 0


async def test_a_plain_put_takes_a_key_off_its_lease(client: EtcdClient, prefix: bytes) -> None:
    key = prefix + b"a"
    lease = (await client.grant(60)).lease_id
    await client.put(key, b"1", lease=lease)
    await client.put(key, b"2", ignore_lease=True)
    assert (await client.time_to_live(lease, keys=True)).keys == (key,)
    await client.put(key, b"3")
    assert (await client.time_to_live(lease, keys=True)).keys == ()
    await client.revoke(lease)
    kv = await client.get(key)
    assert kv is not None
    assert (kv.value, kv.lease) == (b"3", 0)


async def test_ignore_lease_needs_the_key(client: EtcdClient, prefix: bytes) -> None:
    with pytest.raises(KeyNotFound):
        await client.put(prefix + b"a", b"1", ignore_lease=True)
    with pytest.raises(KeyNotFound):
        await client.txn([], [Put(prefix + b"b", b"1"), Put(prefix + b"a", b"1", ignore_lease=True)])
    assert (await client.get_prefix(prefix)).count == 0
    with pytest.raises(ValueError, match="lease"):
        Put(b"a", b"", lease=1, ignore_lease=True)


async def test_a_put_under_a_dead_lease_fails_the_whole_transaction(client: EtcdClient, prefix: bytes) -> None:
    lease = (await client.grant(60)).lease_id
    assert await client.revoke(lease)
    with pytest.raises(LeaseNotFound):
        await client.txn([], [Put(prefix + b"a", b""), Put(prefix + b"b", b"", lease=lease)])
    with pytest.raises(LeaseNotFound):
        await client.put(prefix + b"b", b"", lease=lease)
    assert (await client.get_prefix(prefix)).count == 0
