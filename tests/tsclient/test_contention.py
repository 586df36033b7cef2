# SPDX-License-Identifier: Apache-2.0
"""Many callers at once against real replicas on a real etcd: queues drain, and nobody waits in a circle.

TIMESLICE_TEST_ROUNDS multiplies what the tests do (`make test-client-long`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

import pytest

import tsclient
import tsclient.aio as ts
from tests.coordinator.serve.world import World, until_seen
from tests.support.etcd_source import TestEtcd

ROUNDS = int(os.environ.get("TIMESLICE_TEST_ROUNDS", "1"))


@pytest.fixture
async def world(etcd: TestEtcd, prefix: bytes) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        yield World(etcd.endpoints, prefix.decode(), stack)


async def test_five_hundred_acquires_of_fifty_milliseconds_leave_an_empty_queue(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    outcomes: list[str] = []

    async with (
        await ts.connect(replica.address, job="holder") as holder,
        await ts.connect(replica.address) as client,
    ):
        turn = await holder.acquire("g", timeout=30)

        async def impatient(number: int) -> None:
            try:
                got = await client.acquire("g", timeout=0.05, job=f"j{number % 100}")
            except tsclient.AcquireTimeout:
                outcomes.append("timeout")
            else:
                outcomes.append("granted")
                await got.yield_()

        async with asyncio.timeout(90):
            await asyncio.gather(*(impatient(number) for number in range(500)))
        assert outcomes == ["timeout"] * 500
        # Nothing but the holder is left, in the ledger itself, once the last of them have been taken back there.
        etcd, left = await world.etcd(), [b""]
        async with asyncio.timeout(30):
            while left != [world.keys.ticket("g", "holder")]:
                left = [kv.key for kv in (await etcd.get_prefix(world.keys.tickets("g"))).kvs]
        await until_seen(replica, lambda: len(replica.engine.picture.queue("g")) == 1)
        await turn.yield_()
        await (await client.acquire("g", timeout=30, job="j0")).yield_()


@pytest.mark.timeout(120 + 3600 * (ROUNDS > 1))
async def test_two_jobs_that_take_two_groups_in_opposite_orders_never_wait_for_each_other(world: World) -> None:
    replica = await world.replica()
    for group in ("trainers", "samplers"):
        await world.group(replica, group)
    tokens: dict[str, list[int]] = {"trainers": [], "samplers": []}

    async def work(job: str, *groups: str) -> None:
        async with await ts.connect(replica.address, job=job) as client:
            for _ in range(100 * ROUNDS):
                async with client.accelerators(*groups, timeout=60) as turn:
                    for group, token in turn.tokens.items():
                        tokens[group].append(token)  # while holding: the order of the list is that of the turns
                    turn.check()

    async with asyncio.timeout(100 * ROUNDS):
        await asyncio.gather(work("a", "trainers", "samplers"), work("b", "samplers", "trainers"))
    for taken in tokens.values():
        assert len(taken) == 200 * ROUNDS
        assert taken == sorted(set(taken))


async def test_what_is_refused_in_one_group_is_had_in_none(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    async with await ts.connect(replica.address, job="a") as client:
        with pytest.raises(tsclient.NoSuchGroup):
            await client.acquire("g", "nowhere", timeout=30)
        etcd = await world.etcd()
        assert await etcd.get(world.keys.ticket("g", "a")) is None
        await (await client.acquire("g", timeout=30)).yield_()
