# SPDX-License-Identifier: Apache-2.0
"""Several groups at once (rule 29): one moment for all places, granted together, given back together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from coordinator.serve.server import CoordinatorServer
from ledger.records import Phase
from tests.coordinator.serve.world import Client, World, state_of, until_seen
from tests.support.etcd_source import TestEtcd
from timeslice_proto.v1 import coordinator_pb2 as pb

GROUPS = ("g", "h")


@pytest.fixture
async def world(etcd: TestEtcd, prefix: bytes) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        yield World(etcd.endpoints, prefix.decode(), stack)


@pytest.fixture
async def replica(world: World) -> CoordinatorServer:
    ready = await world.replica()
    for group in GROUPS:
        await world.group(ready, group)
    return ready


async def ask(client: Client, sequence: int, job: str, *groups: str) -> None:
    await client.send(acquire=pb.AcquireRequest(sequence=sequence, job=job, groups=groups))


async def hold(client: Client, sequence: int, job: str, *groups: str) -> dict[str, int]:
    """The tokens of a granted acquire."""
    await ask(client, sequence, job, *groups)
    granted = await client.event("granted")
    assert granted.sequence == sequence
    return {grant.group: grant.token for grant in granted.grants}


def waits(replica: CoordinatorServer, job: str, *groups: str) -> bool:
    return all(state_of(replica, job, group) is not None for group in groups)


def idle(replica: CoordinatorServer, group: str) -> bool:
    kept = replica.engine.picture.turn(group)
    return kept is not None and kept.value.phase is Phase.IDLE and not replica.engine.picture.queue(group)


async def test_rule_29_all_places_are_taken_at_the_same_moment_and_all_turns_are_told_together(
    world: World, replica: CoordinatorServer
) -> None:
    holder, client = await world.client(replica), await world.client(replica)
    tokens = await hold(holder, 1, "b", "h")
    await ask(client, 1, "a", "g", "h")
    await until_seen(replica, lambda: waits(replica, "a", *GROUPS))
    places = [kept.create for group in GROUPS if (kept := replica.engine.picture.queue(group).get("a")) is not None]
    assert len(set(places)) == 1
    # g has granted long before h can.
    await until_seen(
        replica, lambda: (kept := replica.engine.picture.turn("g")) is not None and kept.value.phase is Phase.HELD
    )
    await holder.give_back(1, "b", tokens["h"], "h")
    granted = await client.event("granted")
    assert sorted(grant.group for grant in granted.grants) == ["g", "h"]
    assert not any(event.HasField("granted") for event in client.past)
    for grant in granted.grants:
        await client.give_back(1, "a", grant.token, grant.group)
        assert (await client.event("yielded")).group == grant.group
    await until_seen(replica, lambda: all(idle(replica, group) for group in GROUPS))


async def test_rule_29_a_group_that_is_not_there_takes_no_place_in_the_others(
    world: World, replica: CoordinatorServer
) -> None:
    client = await world.client(replica)
    await ask(client, 1, "a", "g", "none")
    assert (await client.event("refused")).reason == "NO_SUCH_GROUP"
    assert await (await world.etcd()).get(world.keys.ticket("g", "a")) is None


async def test_rule_29_a_cancel_takes_back_all(world: World, replica: CoordinatorServer) -> None:
    holder, client = await world.client(replica), await world.client(replica)
    await hold(holder, 1, "b", "h")
    await ask(client, 1, "a", "g", "h")
    await until_seen(replica, lambda: waits(replica, "a", *GROUPS))
    await client.send(cancel=pb.CancelRequest(sequence=1))
    await client.event("cancelled")
    etcd = await world.etcd()
    assert [await etcd.get(world.keys.ticket(group, "a")) for group in GROUPS] == [None, None]


async def test_rule_29_refused_in_one_is_refused_in_all(world: World, replica: CoordinatorServer) -> None:
    holder, client = await world.client(replica), await world.client(replica)
    await hold(holder, 1, "b", "h")
    await ask(client, 1, "a", "g", "h")
    await until_seen(
        replica, lambda: (kept := replica.engine.picture.turn("g")) is not None and kept.value.phase is Phase.HELD
    )
    stub = await world.stub(replica)
    await stub.Evict(pb.EvictRequest(group="h", job="a"))
    assert (await client.event("refused")).reason == "EVICTED"
    # When it is told, nothing is left: the turn of the other group has been given back.
    etcd = await world.etcd()
    assert [await etcd.get(world.keys.ticket(group, "a")) for group in GROUPS] == [None, None]
    assert idle(replica, "g") or await until_idle(replica, "g")


async def until_idle(replica: CoordinatorServer, group: str) -> bool:
    await until_seen(replica, lambda: idle(replica, group))
    return True


async def test_rule_29_a_partly_granted_acquire_goes_on_at_another_replica(
    world: World, replica: CoordinatorServer
) -> None:
    holder, client = await world.client(replica), await world.client(replica)
    tokens = await hold(holder, 1, "b", "h")
    await ask(client, 1, "a", "g", "h")
    await until_seen(
        replica, lambda: (kept := replica.engine.picture.turn("g")) is not None and kept.value.phase is Phase.HELD
    )
    other = await world.replica()
    resumed = await world.client(other, opened=False)
    wanted = [pb.AcquireRequest(sequence=1, job="a", groups=GROUPS)]
    await resumed.resume(client, wanted=wanted, last_sequence=1)
    await holder.give_back(1, "b", tokens["h"], "h")
    granted = await resumed.event("granted")
    assert sorted(grant.group for grant in granted.grants) == ["g", "h"]
    # And once more, with both turns held: each is still there, and what is lost is told of its group.
    again = await world.client(replica, opened=False)
    held = [pb.HeldTurn(sequence=1, job="a", group=grant.group, token=grant.token) for grant in granted.grants]
    await again.resume(client, held=held, last_sequence=1)
    stub = await world.stub(replica)
    await stub.Evict(pb.EvictRequest(group="h", job="a"))
    lost = await again.event("lost")
    assert (lost.sequence, lost.group, lost.reason) == (1, "h", "EVICTED")
    await again.send(cancel=pb.CancelRequest(sequence=1))
    await again.event("cancelled")
    assert await (await world.etcd()).get(world.keys.ticket("g", "a")) is None


async def test_rule_29_jobs_that_name_the_groups_in_opposite_orders_never_wait_for_each_other(
    world: World, replica: CoordinatorServer
) -> None:
    one, two = await world.client(replica), await world.client(replica)

    async def work(client: Client, job: str, *groups: str) -> None:
        for sequence in range(1, 16):
            tokens = await hold(client, sequence, job, *groups)
            for group, token in tokens.items():
                await client.give_back(sequence, job, token, group)
                await client.event("yielded")

    async with asyncio.timeout(90):
        await asyncio.gather(work(one, "a", "g", "h"), work(two, "b", "h", "g"))
