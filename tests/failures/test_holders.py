# SPDX-License-Identifier: Apache-2.0
"""L4, L6, L13: a holder that has lost its turn is told and harms nobody; one that is slow to take it is left alone."""

from __future__ import annotations

import asyncio

import pytest

import tsclient
import tsclient.aio as ts
from coordinator.serve.server import CoordinatorServer
from ledger.kept import Kept
from ledger.records import Ack, Directive, Ticket, TicketState, Turn
from tests.coordinator.serve.world import PROCESS, WITHIN, Client, World, refused, state_of, until_seen
from tests.support.scripted_agent import obey
from timeslice_proto.v1 import coordinator_pb2 as pb


def turn_of(replica: CoordinatorServer) -> Kept[Turn]:
    turn = replica.engine.picture.turn("g")
    assert turn is not None
    return turn


def ticket_of(replica: CoordinatorServer, job: str) -> Kept[Ticket]:
    ticket = replica.engine.picture.queue("g").get(job)
    assert ticket is not None
    return ticket


async def granted(client: Client, job: str, sequence: int = 1) -> int:
    """Let it ask and wait for its turn. The token."""
    await client.acquire(sequence, job)
    token: int = (await client.event("granted")).grants[0].token
    return token


async def test_l4_a_holder_whose_lease_is_revoked_is_told_inside_its_block(world: World) -> None:
    """It is told although it touches nothing, and `check` and the end of the block say so."""
    replica, etcd = await world.replica(), await world.etcd()
    await world.group(replica)
    told, loop = asyncio.Event(), asyncio.get_running_loop()
    turns: list[ts.Turn] = []

    async def block(client: ts.Client) -> None:
        async with client.accelerators(
            "g", timeout=WITHIN, on_lost=lambda _: loop.call_soon_threadsafe(told.set)
        ) as turn:
            turns.append(turn)
            await etcd.revoke(int(ticket_of(replica, "a").value.session, 16))
            async with asyncio.timeout(WITHIN):
                await told.wait()
            with pytest.raises(tsclient.TurnLost):
                turn.check()

    async with await ts.connect(replica.address, job="a") as client:
        with pytest.raises(tsclient.TurnLost):  # also for who never asked
            await block(client)
        # It may come again, and is then not taken for the one that has lost.
        async with client.accelerators("g", timeout=WITHIN) as again:
            assert again.token > turns[0].token
            again.check()


@pytest.mark.parametrize("late", ["its-session", "a-new-session"])
async def test_l6_a_late_yield_does_not_end_the_next_turn_of_the_same_job(world: World, late: str) -> None:
    """The job's key in the queue is another process's by now: only session and token tell them apart."""
    replica, etcd = await world.replica(), await world.etcd()
    await world.group(replica)
    stub = await world.stub(replica)
    lost = await stub.OpenSession(pb.OpenRequest(process=PROCESS, ttl_ms=600_000))
    first = await stub.Acquire(
        pb.AcquireCall(
            session=lost.session,
            secret=lost.secret,
            acquire=pb.AcquireRequest(sequence=1, job="a", groups=["g"]),
        )
    )
    old = first.grants[0].token
    await etcd.revoke(int(lost.session, 16))
    await until_seen(replica, lambda: state_of(replica, "a") is None)
    heir = await world.client(replica)
    await granted(heir, "a")
    before = turn_of(replica), ticket_of(replica, "a")

    asking = lost if late == "its-session" else await stub.OpenSession(pb.OpenRequest(process=PROCESS))
    call = pb.YieldCall(session=asking.session, secret=asking.secret)
    getattr(call, "yield").CopyFrom(pb.YieldRequest(sequence=1, job="a", group="g", token=old))
    assert await refused(stub.Yield(call)) == ("SESSION_EXPIRED" if asking is lost else "STALE_TOKEN")
    getattr(call, "yield").token = before[0].value.token
    assert await refused(stub.Yield(call)) == ("SESSION_EXPIRED" if asking is lost else "NOT_HOLDER")
    assert (turn_of(replica), ticket_of(replica, "a")) == before


async def test_l6_a_late_cancel_does_not_take_the_next_place_of_the_same_job(world: World) -> None:
    """A beat that names nothing as wanted prunes what its own session has asked for, and nothing else."""
    replica = await world.replica()
    await world.group(replica)
    holder, heir, late = [await world.client(replica) for _ in range(3)]
    await granted(holder, "h")
    await heir.acquire(1, "a")
    await heir.event("queued")
    before = ticket_of(replica, "a")
    await late.acquire(1, "a")  # refused: the place is the other's
    assert (await late.event("refused")).reason == "ALREADY_QUEUED"
    await late.send(cancel=pb.CancelRequest(sequence=1))
    await late.event("cancelled")
    await late.acquire(2, "a", if_held=pb.IF_HELD_WAIT)  # without a place, behind the other
    await late.event("queued")
    await late.send(cancel=pb.CancelRequest(sequence=2))
    await late.event("cancelled")
    await late.beat(last_sequence=5, prune=True)
    await late.send(close=pb.CloseRequest())
    await late.event("closed")
    assert ticket_of(replica, "a") == before


async def test_l13_nobody_is_moved_in_on_a_grant_that_is_not_taken_yet(world: World) -> None:
    """The holder hears nothing of its grant and has no process on the devices; its heartbeats alone go on.

    Whoever waits stays where it is: no node is told anything until the holder gives its turn back.
    """
    replica = await world.replica()
    told: list[str] = []

    def answer(directive: Directive) -> Ack:
        told.append(f"{directive.kind.name} {directive.on}")
        return obey(directive)

    await world.group(replica, answer=answer)
    slow, waiter = await world.client(replica), await world.client(replica)
    await slow.acquire(1, "slow")
    await until_seen(replica, lambda: state_of(replica, "slow") is TicketState.GRANTED)
    held = turn_of(replica)
    told.clear()
    await waiter.acquire(1, "b")
    await waiter.event("queued")
    beats = await world.stub(replica)
    for number in range(5):
        await beats.Beat(pb.BeatRequest(session=slow.session, secret=slow.secret, number=100 + number))
        await waiter.beat(last_sequence=1, wanted=[1])
    assert (turn_of(replica), told) == (held, [])
    token = (await slow.event("granted")).grants[0].token  # it reads at last
    assert token == held.value.token
    await slow.give_back(1, "slow", token)
    await waiter.event("granted")
    assert told == ["PREPARE b", "COMMIT b"]


async def test_l13_a_grant_that_its_client_never_heard_of_waits_for_it_elsewhere(world: World) -> None:
    """The replica dies between writing the grant and telling of it: the client asks another, and has the turn."""
    dies, stays = await world.replica(), await world.replica()
    await world.group(stays)
    client, waiter = await world.client(dies), await world.client(stays)
    await until_seen(dies, lambda: dies.engine.picture.turn("g") is not None)
    await client.acquire(1, "a")
    await until_seen(stays, lambda: state_of(stays, "a") is TicketState.GRANTED)
    held = turn_of(stays)
    client.call.cancel()  # nothing that was said on it has been read
    await dies.stop()
    await waiter.acquire(1, "b")
    await waiter.event("queued")
    again = Client(await world.stub(stays))
    await again.resume(client, last_sequence=1, wanted=[pb.AcquireRequest(sequence=1, job="a", groups=["g"])])
    assert (await again.event("granted")).grants[0].token == held.value.token
    assert turn_of(stays) == held
    await again.give_back(1, "a", held.value.token)
    await waiter.event("granted")
