# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio: the same promises, awaited."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

import tsclient
import tsclient.aio as ts
from tests.tsclient.fake_coordinator import FakeCoordinator

Connect = Callable[..., Coroutine[Any, Any, ts.Client]]


@pytest.fixture(params=["helper", "in process"])
async def connect(coordinator: FakeCoordinator, request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Opens a client for job "a", with its session in the one place or the other; all are closed at the end."""
    clients: list[ts.Client] = []

    async def make(job: str = "a", ttl: float = 30.0) -> ts.Client:
        in_process = request.param == "in process"
        clients.append(await ts.connect(coordinator.endpoints, job=job, ttl=ttl, in_process=in_process))
        return clients[-1]

    yield make
    for client in clients:
        await client.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - it comes from another thread
            await asyncio.sleep(0.01)


async def test_a_turn_for_a_block(coordinator: FakeCoordinator, connect: Connect) -> None:
    client = await connect()
    async with client.accelerators("g", timeout=30) as turn:
        assert (turn.group, turn.job, turn.token, turn.lost) == ("g", "a", 101, False)
        turn.check()
    assert coordinator.queue == []
    with pytest.raises(tsclient.NotHolder):
        turn.check()
    with pytest.raises(tsclient.NotHolder):
        await turn.yield_()


async def test_a_turn_for_each_call_of_a_coroutine_function(coordinator: FakeCoordinator, connect: Connect) -> None:
    client = await connect()

    @client.accelerators("g", timeout=30)
    async def work(x: int) -> int:
        await asyncio.sleep(0)
        return coordinator.queue[0].token + x

    assert await work(1) == 102
    assert await asyncio.gather(work(0), work(0)) == [102, 103]
    with pytest.raises(TypeError, match="coroutine"):
        client.accelerators("g")(lambda: None)  # type: ignore[arg-type, return-value]


async def test_progress_is_told_in_the_loop(coordinator: FakeCoordinator, connect: Connect) -> None:
    told: list[tsclient.Progress] = []

    def on_progress(progress: tsclient.Progress) -> None:
        assert asyncio.get_running_loop() is not None
        told.append(progress)
        coordinator.stranger_leaves()

    coordinator.stranger()
    turn = await (await connect()).acquire("g", timeout=30, on_progress=on_progress)
    assert await turn.yield_() == 0
    assert told == [tsclient.Queued("g", 1)]


@pytest.mark.parametrize("how", ["cancelled", "timeout", "asyncio's timeout"])
async def test_an_acquire_that_ends_leaves_no_ticket(coordinator: FakeCoordinator, connect: Connect, how: str) -> None:
    coordinator.stranger()
    client = await connect()
    match how:
        case "cancelled":
            waiting = asyncio.create_task(client.acquire("g", timeout=60))
            await until(lambda: len(coordinator.queue) == 2)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        case "timeout":
            with pytest.raises(tsclient.AcquireTimeout):
                await client.acquire("g", timeout=0.2)
        case _:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.acquire("g")
    await until(lambda: [ticket.job for ticket in coordinator.queue] == ["other"])
    coordinator.stranger_leaves()
    await (await client.acquire("g", timeout=30)).yield_()


async def test_a_cancelled_yield_is_carried_out_all_the_same(coordinator: FakeCoordinator, connect: Connect) -> None:
    turn = await (await connect()).acquire("g", timeout=30)
    coordinator.faults.answer_yields = False
    yielding = asyncio.create_task(turn.yield_())
    await until(lambda: "yield 1" in coordinator.log)
    yielding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await yielding
    with pytest.raises(tsclient.NotHolder):
        turn.check()
    await until(lambda: coordinator.queue == [])


async def test_a_lost_turn_is_raised_at_the_end_of_its_block(coordinator: FakeCoordinator, connect: Connect) -> None:
    client = await connect()
    with pytest.raises(tsclient.Evicted, match="by hand"):  # noqa: PT012
        async with client.accelerators("g", timeout=30) as turn:
            coordinator.evict()
            await until(lambda: turn.lost)
    await until(lambda: coordinator.queue == [])


async def test_a_loop_that_stands_still_loses_no_turn(coordinator: FakeCoordinator, connect: Connect) -> None:
    turn = await (await connect(ttl=2)).acquire("g", timeout=30)
    beats = coordinator.log.count("beat")
    while coordinator.log.count("beat") < beats + 5:  # without an await: nothing else runs in this loop
        turn.check()
    await turn.yield_()


async def test_a_turn_that_nobody_keeps_is_given_back_with_a_warning(
    coordinator: FakeCoordinator, connect: Connect
) -> None:
    client = await connect()
    with pytest.warns(ResourceWarning, match="never given back") as told:  # noqa: PT031
        await client.acquire("g", timeout=30)
        gc.collect()
        await until(lambda: told.list)  # the thread that has brought it may be the last to let it go
    await until(lambda: coordinator.queue == [])


async def test_the_modules_functions_use_the_environment(
    coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMESLICE_ENDPOINTS", ",".join(coordinator.endpoints))
    monkeypatch.setenv("TIMESLICE_JOB_ID", "from-the-environment")
    async with ts.accelerators("g", timeout=30) as turn:
        assert turn.job == "from-the-environment"

    async def work() -> None:
        await (await ts.acquire("g", timeout=30)).yield_()

    await asyncio.gather(*(work() for _ in range(5)))
    assert coordinator.log.count("open") == 1
    assert await ts.close()
    assert coordinator.sessions == {}


async def test_the_first_acquires_time_is_the_openings_too(
    coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has no time left goes; the session is the next one's all the same."""
    monkeypatch.setenv("TIMESLICE_ENDPOINTS", ",".join(coordinator.endpoints))
    monkeypatch.setenv("TIMESLICE_JOB_ID", "a")
    with pytest.raises(tsclient.Unavailable, match="a session in 0 s"):
        await ts.acquire("g", timeout=0)
    async with ts.accelerators("g", timeout=30):
        assert coordinator.log.count("open") == 1
    assert await ts.close()
    with pytest.raises(tsclient.Unavailable):
        await ts.acquire("g", timeout=0)
    waiting = asyncio.ensure_future(ts.acquire("g", timeout=30))
    await asyncio.sleep(0)
    assert await ts.close()
    with pytest.raises(tsclient.ClientClosed, match="while its session"):
        await waiting
    await until(lambda: coordinator.sessions == {})


async def test_connecting_to_nobody_says_so_in_time() -> None:
    with pytest.raises(tsclient.Unavailable, match=r"127\.0\.0\.1:1 "):
        await ts.connect("127.0.0.1:1", job="a", connect_timeout=1.0)
