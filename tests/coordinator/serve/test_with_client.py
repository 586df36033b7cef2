# SPDX-License-Identifier: Apache-2.0
"""The client library against real replicas: turns in order, and a replica that goes in the middle of a turn."""

from __future__ import annotations

import asyncio

import tsclient
from ledger.records import TicketState
from tests.coordinator.serve.world import World, state_of, until_seen


def take_turns(job: str, endpoints: list[str], times: int, tokens: list[int]) -> None:
    client = tsclient.connect(endpoints=endpoints, job=job)
    try:
        for _ in range(times):
            with client.accelerators("g", timeout=60) as turn:
                tokens.append(turn.token)  # while holding: the order of the list is the order of the turns
    finally:
        client.close()


async def test_promise_2_tokens_grow_whichever_replicas_serve(world: World) -> None:
    one, two = await world.replica(), await world.replica()
    await world.group(one)
    tokens: list[int] = []
    ways = [[one.address, two.address], [two.address, one.address]]
    jobs = [asyncio.to_thread(take_turns, f"j{number}", ways[number % 2], 10, tokens) for number in range(4)]
    await asyncio.gather(*jobs)
    assert len(tokens) == 40
    assert tokens == sorted(set(tokens))


async def test_a_turn_goes_on_when_its_replica_leaves(world: World) -> None:
    staying, leaving = await world.replica(), await world.replica()
    await world.group(staying)
    endpoints = [leaving.address, staying.address]
    client = await asyncio.to_thread(lambda: tsclient.connect(endpoints=endpoints, job="a", ttl=10.0))
    try:
        turn = await asyncio.to_thread(lambda: client.acquire("g", timeout=30))
        await leaving.stop()
        served_by = staying.engine.replica_id
        changed = asyncio.Event()
        ticket = staying.engine.picture.queue("g").get("a")
        assert ticket is not None
        session = ticket.value.session
        end = staying.engine.subscribe_session(session, changed.set)
        async with asyncio.timeout(30):
            while (kept := staying.engine.picture.session(session)) is None or kept.value.replica != served_by:
                changed.clear()
                await changed.wait()
        end()
        turn.check()
        assert state_of(staying, "a") is TicketState.GRANTED
        await asyncio.to_thread(turn.yield_)
        await until_seen(staying, lambda: state_of(staying, "a") is None)
    finally:
        await asyncio.to_thread(client.close)
