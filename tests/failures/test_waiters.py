# SPDX-License-Identifier: Apache-2.0
"""L2, L3: a waiter whose own lease has ended is told while the holder still holds, and is never granted."""

from __future__ import annotations

import asyncio

import tsclient.aio as ts
from coordinator.serve.server import CoordinatorServer
from ledger.codec import decode
from ledger.etcd import EventType
from ledger.records import Ack, Directive, Ticket, TicketState
from tests.coordinator.serve.world import WITHIN, Client, World, state_of, until_seen
from tests.support.scripted_agent import Answer, obey


async def queue(
    world: World, replica: CoordinatorServer, *, ttl_ms: int = 600_000, answer: Answer = obey
) -> tuple[Client, Client, Client, int]:
    """``a`` holds, ``b`` waits in a session with this time to live, ``c`` waits behind it; and the token of ``a``."""
    await world.group(replica, answer=answer)
    a, b, c = [await world.client(replica, opened=False) for _ in range(3)]
    await a.open()
    await b.open(ttl_ms)
    await c.open()
    await a.acquire(1, "a")
    token = (await a.event("granted")).grants[0].token
    for client, job in ((b, "b"), (c, "c")):
        await client.acquire(1, job)
        await client.event("queued")
    return a, b, c, token


async def written(world: World, job: str, since: int) -> list[TicketState | None]:
    """What has been written to the job's ticket since that revision; None: it was deleted."""
    etcd, key, marker = await world.etcd(), world.keys.ticket("g", job), (world.prefix + "marker").encode()
    await etcd.put(marker, b"")
    found: list[TicketState | None] = []
    async with asyncio.timeout(WITHIN), etcd.watch(world.prefix.encode(), since + 1) as batches:
        async for batch in batches:
            for one in batch.events:
                if one.kv.key == marker:
                    return found
                if one.kv.key == key:
                    found.append(decode(Ticket, one.kv.value).state if one.type is EventType.PUT else None)
    raise AssertionError("the watch ended")


async def test_l3_a_waiter_whose_lease_is_gone_is_told_though_nobody_leaves(world: World) -> None:
    replica, etcd = await world.replica(), await world.etcd()
    a, b, c, token = await queue(world, replica)
    since = replica.engine.picture.revision
    await etcd.revoke(int(b.session, 16))
    assert (await b.event("refused", "lost")).reason == "SESSION_EXPIRED"
    assert await b.reason() == "SESSION_EXPIRED"
    assert state_of(replica, "a") is TicketState.GRANTED  # who is told has not had to wait for the holder
    assert state_of(replica, "c") is TicketState.WAITING
    await a.give_back(1, "a", token)
    await c.event("granted")
    assert await written(world, "b", since) == [None]


async def test_l2_a_waiter_that_has_gone_silent_is_never_granted(world: World) -> None:
    """Its time to live ends behind a holder that goes on; only then does the holder leave."""
    replica = await world.replica()
    a, b, c, token = await queue(world, replica, ttl_ms=2_000)
    since = replica.engine.picture.revision
    assert (await b.event("refused", "lost")).reason == "SESSION_EXPIRED"
    assert state_of(replica, "a") is TicketState.GRANTED
    await a.give_back(1, "a", token)
    after = (await c.event("granted")).grants[0].token
    await c.give_back(1, "c", after)
    await c.event("yielded")
    assert await written(world, "b", since) == [None]
    turn = replica.engine.picture.turn("g")
    assert turn is not None
    assert (turn.value.holder, turn.value.incoming) == (None, None)


async def test_l2_a_waiter_whose_lease_ends_in_its_own_switch_is_not_granted(world: World) -> None:
    """Its job is being brought on when its lease ends: the switch is taken back, and the next is served."""
    begun = asyncio.Event()

    def answer(directive: Directive) -> Ack | None:
        if directive.on == "b":
            begun.set()
            return None
        return obey(directive)

    replica, etcd = await world.replica(), await world.etcd()
    a, b, c, token = await queue(world, replica, answer=answer)
    since = replica.engine.picture.revision
    await a.give_back(1, "a", token)
    async with asyncio.timeout(WITHIN):
        await begun.wait()
    await etcd.revoke(int(b.session, 16))
    assert (await b.event("refused", "lost")).reason == "SESSION_EXPIRED"
    await c.event("granted")
    assert await written(world, "b", since) == [None]


async def test_l3_the_library_asks_again_for_a_waiter_and_takes_its_place_at_the_end(world: World) -> None:
    """Who uses the library waits on: under a new session, behind those who came meanwhile."""
    replica, etcd = await world.replica(), await world.etcd()
    await world.group(replica)
    order: list[str] = []

    async def turn(client: ts.Client, job: str) -> None:
        async with client.accelerators("g", timeout=WITHIN):
            order.append(job)

    async with (
        await ts.connect(replica.address, job="a") as a,
        await ts.connect(replica.address, job="b") as b,
        await ts.connect(replica.address, job="c") as c,
        asyncio.TaskGroup() as waiting,
    ):
        held = await a.acquire("g", timeout=WITHIN)
        waiting.create_task(turn(b, "b"))
        await until_seen(replica, lambda: state_of(replica, "b") is TicketState.WAITING)
        waiting.create_task(turn(c, "c"))
        await until_seen(replica, lambda: state_of(replica, "c") is TicketState.WAITING)
        old = replica.engine.picture.queue("g").get("b")
        assert old is not None
        await etcd.revoke(int(old.value.session, 16))

        def anew() -> bool:
            kept = replica.engine.picture.queue("g").get("b")
            return kept is not None and kept.value.session != old.value.session

        await until_seen(replica, anew)
        assert not order  # the holder still holds
        await held.yield_()
    assert order == ["c", "b"]
