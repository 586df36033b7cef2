# SPDX-License-Identifier: Apache-2.0
"""Reading, writing and deleting keys."""

from __future__ import annotations

import pytest

from ledger.etcd import EtcdClient
from ledger.etcd import client as client_module
from ledger.etcd.errors import Compacted, FutureRevision, InvalidRequest, TooLarge
from ledger.etcd.txn import prefix_end


async def test_a_key_is_read_as_it_was_put(client: EtcdClient, prefix: bytes) -> None:
    first = await client.put(prefix + b"a", b"1")
    second = await client.put(prefix + b"a", b"2")
    kv = await client.get(prefix + b"a")
    assert kv is not None
    assert (kv.key, kv.value, kv.version, kv.lease) == (prefix + b"a", b"2", 2, 0)
    assert (kv.create_revision, kv.mod_revision) == (first.revision, second.revision)


async def test_an_absent_key_is_none(client: EtcdClient, prefix: bytes) -> None:
    assert await client.get(prefix + b"a") is None


async def test_deleting_says_how_many_were_there(client: EtcdClient, prefix: bytes) -> None:
    for name in (b"a", b"b", b"c"):
        await client.put(prefix + name, b"")
    assert (await client.delete(prefix + b"a")).deleted == 1
    assert (await client.delete(prefix + b"a")).deleted == 0
    assert (await client.delete_prefix(prefix)).deleted == 2


async def test_a_long_list_is_of_one_revision(
    client: EtcdClient, prefix: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "PAGE", 2)
    for number in range(5):
        await client.put(prefix + b"%d" % number, b"old")
    call = client._transport.call
    read = 0

    async def write_after_the_first_page(method, request, **kwargs):
        nonlocal read
        response = await call(method, request, **kwargs)
        if method.name == "range":
            read += 1
            if read == 1:
                await client.put(prefix + b"4", b"new")
                await client.put(prefix + b"5", b"new")
        return response

    monkeypatch.setattr(client._transport, "call", write_after_the_first_page)
    result = await client.get_prefix(prefix)
    assert read == 3
    assert [kv.value for kv in result] == [b"old"] * 5
    assert result.count == 5
    assert not result.more
    assert all(kv.mod_revision <= result.revision for kv in result)
    assert result.header.cluster_id


@pytest.mark.parametrize("page", [1, 3, 100])
async def test_a_limit_holds_whatever_the_page(
    client: EtcdClient, prefix: bytes, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(client_module, "PAGE", page)
    for number in range(5):
        await client.put(prefix + b"%d" % number, b"x")
    result = await client.get_prefix(prefix, limit=3, keys_only=True)
    assert [kv.key for kv in result] == [prefix + b"%d" % number for number in range(3)]
    assert [kv.value for kv in result] == [b""] * 3
    assert result.more
    assert result.count == 5
    assert not (await client.get_prefix(prefix, limit=5)).more


async def test_a_list_of_an_earlier_revision(client: EtcdClient, prefix: bytes) -> None:
    before = await client.put(prefix + b"a", b"1")
    await client.put(prefix + b"a", b"2")
    assert [kv.value for kv in await client.get_prefix(prefix, revision=before.revision)] == [b"1"]
    with pytest.raises(FutureRevision):
        await client.get_prefix(prefix, revision=before.revision + 1_000_000)


async def test_a_compacted_revision_is_told(etcd_cluster, connect) -> None:
    client = connect(*etcd_cluster().endpoints)
    first = await client.put(b"a", b"1")
    last = await client.put(b"a", b"2")
    await client.compact(last.revision)
    await client.compact(last.revision)
    with pytest.raises(Compacted):
        await client.get_prefix(b"a", revision=first.revision)


async def test_what_etcd_can_never_accept(client: EtcdClient, prefix: bytes) -> None:
    with pytest.raises(TooLarge):
        await client.put(prefix, b"x" * 1_700_000)
    with pytest.raises(InvalidRequest, match="key is not provided"):
        await client.put(b"", b"")


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"a/", b"a0"), (b"a\xff", b"b"), (b"\xff\xff", b"\0"), (b"", b"\0"), (b"a\xff\xfe", b"a\xff\xff")],
)
def test_prefix_end(prefix: bytes, end: bytes) -> None:
    assert prefix_end(prefix) == end


async def test_the_server_tells_about_itself(etcd3members, connect) -> None:
    client = connect(*etcd3members.endpoints)
    members = await client.members()
    assert {url for member in members for url in member.client_urls} == {
        member.client_url for member in etcd3members.members
    }
    status = await client.status(etcd3members.endpoints[1])
    assert status.version.startswith("3.")
    assert status.leader in {member.member_id for member in members}
    assert status.header.member_id == next(
        member.member_id for member in members if member.name == etcd3members.members[1].name
    )
    assert await client.alarms() == ()
    with pytest.raises(ValueError, match="none of this client's"):
        await client.status("127.0.0.1:1")
