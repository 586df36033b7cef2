# SPDX-License-Identifier: Apache-2.0
"""Unary calls when members freeze, die, lose their majority, or their answers are lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from ledger.etcd import EtcdClient
from ledger.etcd.errors import Closed, DeadlineExceeded, LeaseExists, NoLeader, Unavailable
from ledger.etcd.txn import Get, Put, absent
from tests.support.etcd_source import TestEtcd
from tests.support.metrics import metric
from tests.support.proxy import Proxy
from tests.support.until import until

NOBODY = "127.0.0.1:1"
"""A port that nobody listens on: connections are refused at once."""


def follower(cluster) -> int:
    return (cluster.leader() + 1) % 3


async def test_a_frozen_member_is_left_for_the_next(etcd3members, connect) -> None:
    frozen = follower(etcd3members)
    others = [endpoint for i, endpoint in enumerate(etcd3members.endpoints) if i != frozen]
    client: EtcdClient = connect(etcd3members.endpoints[frozen], *others)
    await client.put(b"a", b"1")
    etcd3members.freeze(frozen)
    kv = await client.get(b"a")
    assert kv is not None
    assert kv.value == b"1"
    assert client.requests["range"] == 2
    # Later calls do not try the frozen member again.
    await client.put(b"a", b"2")
    assert client.requests["put"] == 2


async def test_a_write_to_a_frozen_member_is_not_sent_again(etcd3members, connect) -> None:
    frozen = follower(etcd3members)
    others = [endpoint for i, endpoint in enumerate(etcd3members.endpoints) if i != frozen]
    client: EtcdClient = connect(etcd3members.endpoints[frozen], *others)
    await client.get(b"a")
    etcd3members.freeze(frozen)
    with pytest.raises(DeadlineExceeded) as caught:
        await client.put(b"a", b"1")
    assert caught.value.ambiguous
    assert client.requests["put"] == 1


async def test_a_call_ends_when_every_member_is_frozen(etcd_cluster, connect, without_pings: None) -> None:
    cluster = etcd_cluster()
    client: EtcdClient = connect(*cluster.endpoints, timeout=2.5)
    await client.get(b"a")
    cluster.freeze(0)
    async with asyncio.timeout(30):
        with pytest.raises(DeadlineExceeded) as caught:
            await client.get(b"a")
        assert not caught.value.ambiguous, "a read applies nothing"
        with pytest.raises(DeadlineExceeded) as caught:
            await client.txn([absent(b"a")], [Put(b"a", b"1")], idempotent=True)
        assert caught.value.ambiguous
    assert client.requests["range"] >= 1 + 2, "each attempt has less time than the call"
    assert client.requests["txn"] >= 2


async def test_what_was_not_sent_is_sent_to_the_next(etcd: TestEtcd, connect, prefix: bytes) -> None:
    client: EtcdClient = connect(NOBODY, *etcd.endpoints)
    await client.put(prefix, b"1")
    assert client.requests["put"] == 2
    kv = await client.get(prefix)
    assert kv is not None
    assert kv.version == 1


async def test_nobody_there_is_not_ambiguous(connect) -> None:
    client: EtcdClient = connect(NOBODY, timeout=1)
    async with asyncio.timeout(30):
        with pytest.raises(Unavailable, match=r"ETCD_UNAVAILABLE.*refused.*majority") as caught:
            await client.put(b"a", b"1")
    assert not caught.value.ambiguous


async def test_an_idempotent_transaction_survives_a_lost_answer(etcd: TestEtcd, connect, prefix: bytes) -> None:
    async with Proxy(etcd.endpoint) as proxy:
        client: EtcdClient = connect(proxy.endpoint, *etcd.endpoints)
        await client.get(prefix)
        proxy.lose_answers()
        result = await client.txn([absent(prefix)], [Put(prefix, b"mine")], [Get(prefix)], idempotent=True)
    # The first attempt was applied, so that the second finds the key: it holds the caller's own value.
    assert client.requests["txn"] == 2
    assert not result.succeeded
    assert [kv.value for kv in result.responses[0]] == [b"mine"]


async def test_any_other_write_with_a_lost_answer_is_ambiguous(etcd: TestEtcd, connect, client, prefix: bytes) -> None:
    async with Proxy(etcd.endpoint) as proxy:
        through: EtcdClient = connect(proxy.endpoint, *etcd.endpoints)
        await through.get(prefix)
        proxy.lose_answers()
        with pytest.raises(Unavailable) as caught:
            await through.put(prefix, b"1")
    assert caught.value.ambiguous
    assert through.requests["put"] == 1
    kv = await client.get(prefix)
    assert kv is not None, "it was applied"


async def test_a_connection_cut_in_mid_call_is_ambiguous(etcd: TestEtcd, connect, prefix: bytes) -> None:
    async with Proxy(etcd.endpoint) as proxy:
        through: EtcdClient = connect(proxy.endpoint)
        await through.get(prefix)
        proxy.hold()
        call = asyncio.create_task(through.put(prefix, b"1"))
        await until(lambda: proxy.held > 0)
        proxy.cut()
        with pytest.raises(Unavailable) as caught:
            await call
    assert caught.value.ambiguous


async def test_grant_and_revoke_survive_lost_answers(etcd: TestEtcd, connect, client) -> None:
    async with Proxy(etcd.endpoint) as proxy:
        through: EtcdClient = connect(proxy.endpoint, *etcd.endpoints)
        await through.get(b"a")
        proxy.lose_answers()
        wanted = client.new_lease_id()
        proof = await through.grant(60, lease_id=wanted)
    assert through.requests["lease_grant"] == 2
    assert (proof.lease_id, proof.ttl) == (wanted, 60)
    assert (await client.time_to_live(wanted)).granted_ttl == 60
    with pytest.raises(LeaseExists):
        await client.grant(60, lease_id=wanted)

    async with Proxy(etcd.endpoint) as proxy:
        through = connect(proxy.endpoint, *etcd.endpoints)
        await through.get(b"a")
        proxy.lose_answers()
        assert await through.revoke(wanted), "it was there when this call came"
    assert through.requests["lease_revoke"] == 2
    assert not await client.revoke(wanted)


async def test_a_member_without_majority_says_so_at_once(etcd3members, connect) -> None:
    client: EtcdClient = connect(etcd3members.endpoints[0], timeout=20)
    await client.put(b"a", b"1")
    etcd3members.kill(1)
    etcd3members.kill(2)
    await until(lambda: metric(etcd3members.members[0], "etcd_server_has_leader") == 0)
    with pytest.raises(NoLeader) as caught:
        await client.txn([], [Put(b"a", b"2")], timeout=0.5)
    assert not caught.value.ambiguous
    kv = await client.get(b"a", serializable=True)
    assert kv is not None
    status = await client.status()
    assert (status.leader, status.errors) == (0, ("etcdserver: no leader",))


async def test_a_killed_leader_costs_idempotent_calls_nothing_but_time(etcd3members, connect) -> None:
    client: EtcdClient = connect(*etcd3members.endpoints, timeout=30)
    for number in range(40):
        if number == 20:
            etcd3members.kill(etcd3members.leader())
        key = b"key/%02d" % number
        await client.txn([absent(key)], [Put(key, b"")], idempotent=True)
    assert (await client.get_prefix(b"key/")).count == 40


async def test_each_call_passes_one_place_once(etcd: TestEtcd, connect, prefix: bytes) -> None:
    entered: list[str] = []

    @contextlib.contextmanager
    def around(method: str) -> Iterator[None]:
        entered.append(method)
        yield

    client: EtcdClient = connect(NOBODY, *etcd.endpoints, around=around)
    await client.put(prefix, b"")
    await client.get(prefix)
    assert entered == ["put", "range"]
    assert client.requests == {"put": 2, "range": 1}


async def test_a_closed_client_says_so(etcd: TestEtcd, connect, prefix: bytes) -> None:
    async with Proxy(etcd.endpoint) as proxy:
        client: EtcdClient = connect(proxy.endpoint)
        await client.get(prefix)
        proxy.hold()
        call = asyncio.create_task(client.get(prefix))
        beat = asyncio.create_task(client.beat(1))
        await until(lambda: client.requests["range"] == 2 and client.requests["keepalive"] == 1)
        await client.close()
        for task in (call, beat):
            with pytest.raises(Closed):
                await task
    for use in (client.get(prefix), client.beat(1), client.watch(prefix).__aenter__()):
        with pytest.raises(Closed):
            await use
    await client.close()


async def test_cancelling_a_call_cancels_it(etcd: TestEtcd, connect, prefix: bytes) -> None:
    async with Proxy(etcd.endpoint) as proxy:
        client: EtcdClient = connect(proxy.endpoint)
        await client.get(prefix)
        proxy.hold()
        call = asyncio.create_task(client.get(prefix))
        await until(lambda: client.requests["range"] == 2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


@pytest.mark.parametrize("endpoints", [[], "127.0.0.1:2379", ["127.0.0.1"], ["ftp://127.0.0.1:2379"], ["a:b"]])
def test_what_is_no_endpoint(endpoints) -> None:
    with pytest.raises(ValueError, match="endpoint"):
        EtcdClient(endpoints)
