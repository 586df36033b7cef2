# SPDX-License-Identifier: Apache-2.0
"""Rule 30: a session ends one TTL after its last beat, whatever becomes of its lease.

In most of these tests the lease is renewed behind the replicas' backs, as a change of etcd's leader renews it: so only
the replicas' own count can end the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import pytest
from msgspec.structs import replace

from coordinator.apply.hedge import LEAST_STEP, MOST_STEP, rank
from coordinator.serve import expiry
from coordinator.serve.expiry import Expiry
from coordinator.serve.server import CoordinatorServer
from ledger.codec import decode, encode
from ledger.embedded import EtcdCluster
from ledger.etcd.errors import EtcdError, LeaseNotFound, Unavailable
from ledger.records import Replica, Session
from tests.coordinator.serve.world import PROCESS, WITHIN, Client, World, refused, state_of, until_seen
from timeslice_proto.v1 import coordinator_pb2 as pb

TTL = 2
"""Seconds; the shortest that a session may have."""


@pytest.fixture
async def renewed(world: World) -> AsyncIterator[Callable[[str], None]]:
    """Begin to renew a session's lease behind the replicas' backs, until it is revoked."""
    etcd = await world.etcd()
    tasks: list[asyncio.Task[None]] = []

    async def renew(session: str) -> None:
        with contextlib.suppress(LeaseNotFound):
            while True:
                await etcd.beat(int(session, 16))
                await asyncio.sleep(TTL / 8)

    yield lambda session: tasks.append(asyncio.create_task(renew(session)))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def holder(world: World, replica: CoordinatorServer, renewed: Callable[[str], None], ttl: int = TTL) -> Client:
    """A session that holds group g, and beats no more."""
    client = Client(await world.stub(replica))
    await client.open(ttl_ms=ttl * 1000)
    renewed(client.session)
    await client.acquire(1, "a")
    await client.event("granted")
    return client


async def test_rule_30_a_silent_holder_loses_its_turn_although_its_lease_lives(
    world: World, renewed: Callable[[str], None]
) -> None:
    replica = await world.replica()
    await world.group(replica)
    client = await holder(world, replica, renewed)
    waiter = await world.client(replica)
    await waiter.acquire(1, "b")
    await waiter.event("granted")
    assert (await client.event("lost")).reason == "SESSION_EXPIRED"
    assert state_of(replica, "a") is None


async def test_rule_30_beats_keep_it(world: World, renewed: Callable[[str], None]) -> None:
    """The session beside it, which is older and whose client goes on beating, stays."""
    replica = await world.replica()
    await world.group(replica)
    beating = Client(await world.stub(replica))
    await beating.open(ttl_ms=TTL * 1000)
    silent = await holder(world, replica, renewed)
    over = asyncio.create_task(silent.event("lost"))
    while not over.done():
        await beating.beat()
        await asyncio.wait({over}, timeout=TTL / 8)
    await beating.beat()
    assert replica.engine.picture.session(beating.session) is not None


async def test_rule_30_beats_as_calls_count_and_name_the_replica_that_hears_them(
    world: World, renewed: Callable[[str], None]
) -> None:
    first, second = await world.replica(replica_id="r1"), await world.replica(replica_id="r2")
    await world.group(first)
    stub, other = await world.stub(first), await world.stub(second)
    opened = await stub.OpenSession(pb.OpenRequest(process=PROCESS, ttl_ms=TTL * 1000))
    renewed(opened.session)
    silent = await holder(world, first, renewed)
    beat = pb.BeatRequest(session=opened.session, secret=opened.secret, number=1)
    over = asyncio.create_task(silent.event("lost"))
    while not over.done():
        await other.Beat(beat)
        await asyncio.wait({over}, timeout=TTL / 8)
    await other.Beat(beat)  # r1, where it was opened, has heard nothing for as long as of the silent one
    kv = await (await world.etcd()).get(world.keys.session(opened.session))
    assert kv is not None and decode(Session, kv.value).replica == "r2"
    await until_seen(second, lambda: second.engine.picture.session(opened.session) is None)
    assert await refused(stub.Beat(beat)) == "SESSION_EXPIRED"


async def test_rule_30_a_client_that_resumed_elsewhere_keeps_its_session(
    world: World, renewed: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica that it has left does not even know: its view stands still, and the guard holds it back."""
    left, other = await world.replica(), await world.replica()
    await world.group(left)
    client = await holder(world, left, renewed)
    tried: list[str] = []
    end = Expiry._end

    async def seen(self: Expiry, charge: expiry._Charge) -> None:
        await end(self, charge)
        tried.append(self._engine.replica_id)

    monkeypatch.setattr(Expiry, "_end", seen)
    await left.engine.view.close()
    resumed = Client(await world.stub(other))
    turn = other.engine.picture.turn("g")
    assert turn is not None
    held = pb.HeldTurn(sequence=1, job="a", group="g", token=turn.value.token)
    await resumed.resume(client, last_sequence=1, held=[held])
    async with asyncio.timeout(WITHIN):
        while left.engine.replica_id not in tried:
            await resumed.beat()
            await asyncio.sleep(TTL / 8)
    await resumed.beat()
    assert state_of(other, "a") is not None


async def test_rule_30_another_replica_counts_for_one_that_is_gone(
    world: World, renewed: Callable[[str], None]
) -> None:
    async with contextlib.AsyncExitStack() as dies:
        stays = await world.replica()
        goes = await world.replica()
        dies.push_async_callback(goes.stop)
        await world.group(stays)
        client = await holder(world, goes, renewed)
    assert stays.engine.picture.session(client.session) is not None
    await until_seen(stays, lambda: state_of(stays, "a") is None)
    assert stays.engine.picture.session(client.session) is None


async def test_rule_24_what_is_counted_for_a_replica_that_is_gone_begins_anew_after_an_outage(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been there meanwhile, and have heard the client."""
    replica = await world.replica()
    client = await world.client(replica)
    ttl = await orphan(world, replica, client)
    expiry, now, passed = Expiry(replica.engine), replica.engine.clock(), 0.0
    monkeypatch.setattr(replica.engine, "clock", lambda: now + passed)
    expiry._changed(frozenset({client.session}))
    passed = ttl + 1
    monkeypatch.setattr(replica.engine.view, "_breaks", 1)
    assert not expiry._due()
    passed *= 2
    assert [charge.session for charge in expiry._due()] == [client.session]
    await expiry.close()


async def test_rule_30_who_ranks_first_and_has_died_too_costs_one_holding_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two replicas that died at once one is still registered: nobody waits until that ends, and then one TTL."""
    replica = await world.replica(replica_id="r1")
    client = await world.client(replica)
    ttl = await orphan(world, replica, client)
    first = next(name for name in (f"x{n}" for n in range(100)) if rank("r1", (name, "r1"), client.session) == 1)
    written = await (await world.etcd()).put(world.keys.replica(first), encode(Replica(address="nowhere")))
    await replica.engine.view.reached(written.revision, WITHIN)
    expiry, now, passed = Expiry(replica.engine), replica.engine.clock(), 0.0
    monkeypatch.setattr(replica.engine, "clock", lambda: now + passed)
    expiry._changed(frozenset({client.session}))
    passed = ttl + LEAST_STEP / 2
    assert not expiry._due()
    passed = ttl + LEAST_STEP / 2 + MOST_STEP * 1.2
    assert [charge.session for charge in expiry._due()] == [client.session]
    await expiry.close()


async def orphan(world: World, replica: CoordinatorServer, client: Client) -> float:
    """Make it the session of a replica that is gone. Returns its TTL, in seconds."""
    etcd, key = await world.etcd(), world.keys.session(client.session)
    kv = await etcd.get(key)
    assert kv is not None
    record = replace(decode(Session, kv.value), replica="gone")
    written = await etcd.put(key, encode(record), ignore_lease=True)
    await replica.engine.view.reached(written.revision, WITHIN)
    return record.ttl_ms / 1000


async def test_rule_30_an_end_that_etcd_did_not_take_is_tried_until_the_lease_is_gone(
    world: World, renewed: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is gone, and the answer is lost: nobody may be left with a lease and no session."""
    replica = await world.replica()
    await world.group(replica)
    client = await holder(world, replica, renewed)
    revoke, failed = replica.engine.client.revoke, 0

    async def unlucky(lease_id: int) -> bool:
        nonlocal failed
        failed += 1
        if failed <= 2:
            raise Unavailable("lost on the way", ambiguous=True)
        return await revoke(lease_id)

    monkeypatch.setattr(replica.engine.client, "revoke", unlucky)
    await until_seen(replica, lambda: state_of(replica, "a") is None)
    assert failed == 3
    with pytest.raises(EtcdError):
        await (await world.etcd()).time_to_live(int(client.session, 16))


@pytest.mark.slow
async def test_rule_30_a_dead_holder_is_reclaimed_on_time_while_leaders_change(
    etcd3members: EtcdCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """etcd's leader is killed every TTL/2, so that no lease of it ever ends by itself."""
    ttl = 4
    async with contextlib.AsyncExitStack() as stack:
        world = World(etcd3members.endpoints, "/t/", stack)
        replica = await world.replica()
        await world.group(replica)
        waiter = await world.client(replica)
        client = await holder(world, replica, lambda _session: None, ttl=ttl)
        await waiter.acquire(1, "b")
        await client.beat()
        died = time.monotonic()
        client.call.cancel()
        reclaimed = asyncio.create_task(waiter.event("granted"))
        killed = 0
        while not reclaimed.done():
            leader = await asyncio.to_thread(etcd3members.leader)
            await asyncio.to_thread(etcd3members.kill, leader)
            killed += 1
            await asyncio.to_thread(etcd3members.restart, leader)
            await asyncio.wait({reclaimed}, timeout=ttl / 2)
        took = time.monotonic() - died
        await reclaimed
    with capsys.disabled():
        print(f"\nreclaimed {took:.1f} s after its last beat, TTL {ttl} s, {killed} leaders killed")
    assert took <= 2 * ttl + 3
    assert killed >= 2
