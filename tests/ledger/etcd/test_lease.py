# SPDX-License-Identifier: Apache-2.0
"""Leases: what is proven, until when, and how the loss is known."""

from __future__ import annotations

import asyncio

import pytest

from ledger.etcd import EtcdClient, boottime
from ledger.etcd.errors import DeadlineExceeded, EtcdError, LeaseNotFound
from tests.support.etcd_source import TestEtcd
from tests.support.metrics import metric
from tests.support.proxy import Proxy
from tests.support.until import until

DEADLINE = 30.0


async def lost(lease) -> None:
    async with asyncio.timeout(DEADLINE):
        await lease.lost.wait()


async def test_revoking_a_lease_deletes_its_keys(client: EtcdClient, prefix: bytes) -> None:
    before = boottime()
    proof = await client.grant(60)
    assert proof.ttl == 60
    assert before <= proof.sent_at
    assert proof.deadline == proof.sent_at + 60
    await client.put(prefix, b"", lease=proof.lease_id)
    info = await client.time_to_live(proof.lease_id, keys=True)
    assert (info.granted_ttl, info.keys) == (60, (prefix,))
    assert await client.revoke(proof.lease_id)
    assert await client.get(prefix) is None
    assert not await client.revoke(proof.lease_id)
    with pytest.raises(LeaseNotFound):
        await client.time_to_live(proof.lease_id)


async def test_thousands_of_leases_share_one_stream(client: EtcdClient) -> None:
    leases = [proof.lease_id for proof in await asyncio.gather(*(client.grant(60) for _ in range(1_000)))]
    dead = client.new_lease_id()
    before = boottime()
    async with asyncio.timeout(DEADLINE):
        *proofs, refused = await asyncio.gather(
            *(client.beat(lease, timeout=DEADLINE) for lease in leases), client.beat(dead), return_exceptions=True
        )
    assert isinstance(refused, LeaseNotFound)
    assert [proof.lease_id for proof in proofs] == leases
    assert all(proof.ttl == 60 and proof.sent_at >= before for proof in proofs)
    assert client.requests["keepalive"] == 1_001
    assert len(client._transport._endpoints) == 1
    await asyncio.gather(*(client.revoke(lease) for lease in leases))


async def test_each_beat_waits_for_its_own_answer(etcd: TestEtcd, connect) -> None:
    """One given up must not leave its answer to the next, which was asked later and proves more."""
    async with Proxy(etcd.endpoint) as proxy:
        client: EtcdClient = connect(proxy.endpoint)
        lease = (await client.grant(60)).lease_id
        await client.beat(lease)
        proxy.hold_answers()
        with pytest.raises(DeadlineExceeded):
            await client.beat(lease, timeout=0.1)
        await until(lambda: proxy.held > 0)
        proxy.hold_requests()
        between = boottime()
        beat = asyncio.create_task(client.beat(lease))
        await until(lambda: proxy.held > 1)
        proxy.release_answers()
        # The first answer arrives now; there is nothing to wait for, since it must have no effect.
        await asyncio.sleep(0.2)
        assert not beat.done()
        proxy.release()
        assert (await beat).sent_at >= between


async def test_a_beat_goes_on_at_the_next_member(etcd: TestEtcd, connect, without_pings: None) -> None:
    async with Proxy(etcd.endpoint) as proxy:
        client: EtcdClient = connect(proxy.endpoint, *etcd.endpoints)
        leases = [(await client.grant(60)).lease_id for _ in range(3)]
        await asyncio.gather(*map(client.beat, leases))
        proxy.silence()
        proofs = await asyncio.gather(*(client.beat(lease, timeout=DEADLINE) for lease in leases))
        assert [proof.lease_id for proof in proofs] == leases
        # Sent twice; the time counts from the one that was answered.
        assert client.requests["keepalive"] == 9


async def test_a_beat_has_a_deadline(etcd: TestEtcd, connect) -> None:
    async with Proxy(etcd.endpoint) as proxy:
        client: EtcdClient = connect(proxy.endpoint)
        lease = (await client.grant(60)).lease_id
        proxy.silence()
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(DeadlineExceeded):
                await client.beat(lease, timeout=2)
        await proxy.heal()
        assert (await client.beat(lease, timeout=DEADLINE)).lease_id == lease


async def test_a_member_cut_off_from_its_majority_confirms_nothing(etcd3members, connect) -> None:
    client: EtcdClient = connect(*etcd3members.endpoints)
    lease = (await client.grant(60)).lease_id
    await client.beat(lease)
    etcd3members.kill(1)
    etcd3members.kill(2)
    await until(lambda: metric(etcd3members.members[0], "etcd_server_has_leader") == 0)
    with pytest.raises(DeadlineExceeded):
        await client.beat(lease, timeout=3)
    etcd3members.restart(1)
    assert (await client.beat(lease, timeout=DEADLINE)).ttl == 60


async def test_an_owned_lease_outlives_its_time(client: EtcdClient, prefix: bytes) -> None:
    async with await client.lease(2) as lease:
        await client.put(prefix, b"", lease=lease.lease_id)
        first = lease.deadline
        while lease.deadline < first + 3 * lease.ttl:
            assert lease.alive
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await lease.lost.wait()
        assert await client.get(prefix) is not None
        assert boottime() < lease.deadline <= boottime() + lease.ttl
    assert not lease.alive
    assert await client.get(prefix) is None


async def test_the_loss_is_known_without_etcd(etcd: TestEtcd, connect, client: EtcdClient) -> None:
    async with Proxy(etcd.endpoint) as proxy:
        owner: EtcdClient = connect(proxy.endpoint)
        lease = await owner.lease(2)
        assert lease.alive
        proxy.silence()
        async with asyncio.timeout(DEADLINE):
            while not lease.lost.is_set():
                # Somebody else keeps it alive in etcd, which its owner cannot know.
                await client.beat(lease.lease_id)
                await asyncio.sleep(0.1)
        assert boottime() >= lease.deadline
        await proxy.heal()
        assert (await owner.beat(lease.lease_id, timeout=DEADLINE)).lease_id == lease.lease_id
        assert not lease.alive
        await lease.close()


async def test_a_lease_revoked_by_others_is_lost_before_its_time(client: EtcdClient) -> None:
    async with await client.lease(60) as lease:
        # Renewals come every 20 s; the clock is not waited for.
        await client.revoke(lease.lease_id)
        lease._tasks[0].cancel()
        with pytest.raises(LeaseNotFound):
            await client.beat(lease.lease_id)
    short = await client.lease(3)
    await client.revoke(short.lease_id)
    await lost(short)
    assert boottime() < short.deadline
    await short.close()


async def test_time_that_passed_in_suspend_counts(etcd: TestEtcd, connect) -> None:
    asleep = 0.0
    client: EtcdClient = connect(*etcd.endpoints, clock=lambda: boottime() + asleep)
    async with await client.lease(60) as lease:
        assert lease.alive
        asleep = 61.0
        assert not lease.alive
        assert lease.lost.is_set()
    other = await client.lease(600)
    await client.beat(other.lease_id)
    asleep += 601.0
    await lost(other)
    await other.close()


async def test_an_answer_after_the_deadline_revives_nothing(etcd: TestEtcd, connect) -> None:
    asleep = 0.0
    client: EtcdClient = connect(*etcd.endpoints, clock=lambda: boottime() + asleep)
    lease = await client.lease(2)
    deadline = lease.deadline
    beat = lease._keepalives.beat

    async def slow_beat(lease_id: int, *, timeout: float | None = None):
        nonlocal asleep
        proof = await beat(lease_id, timeout=timeout)
        asleep = 5.0
        return proof

    lease._keepalives.beat = slow_beat
    await lost(lease)
    assert lease.deadline == deadline
    assert not lease.alive
    await lease.close()


async def test_closing_without_revoking_leaves_the_lease(etcd: TestEtcd, connect, client: EtcdClient) -> None:
    owner: EtcdClient = connect(*etcd.endpoints)
    lease = await owner.lease(60)
    await owner.close()
    assert not lease.alive
    assert (await client.time_to_live(lease.lease_id)).granted_ttl == 60
    await client.revoke(lease.lease_id)


async def test_a_fault_of_the_client_itself_ends_no_renewal_for_good(
    client: EtcdClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = await client.grant(60)
    serve = client._keepalives._serve

    async def broken(*_arguments: object) -> None:
        monkeypatch.setattr(client._keepalives, "_serve", serve)
        raise RuntimeError("a fault of this program")

    monkeypatch.setattr(client._keepalives, "_serve", broken)
    with pytest.raises(EtcdError, match="a fault of this program"):
        await client.beat(proof.lease_id)
    assert (await client.beat(proof.lease_id)).ttl == 60
