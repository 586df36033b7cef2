# SPDX-License-Identifier: Apache-2.0
"""The client against real replicas on a real etcd; only the node's agent is scripted."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable

import pytest

import tsclient as ts
from coordinator.serve.server import CoordinatorServer
from ledger.records import Ended
from tests.coordinator.serve.world import World, state_of, until_seen
from tests.support.etcd_source import TestEtcd
from tests.tsclient.child import child
from tests.tsclient.processes import helper_pid, stopped
from tsclient.cli import main as command
from tsclient.cli.exits import Exit

off_loop = asyncio.to_thread  # the replicas live in the test's own loop: what blocks must not block them


@pytest.fixture
async def world(etcd: TestEtcd, prefix: bytes) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        yield World(etcd.endpoints, prefix.decode(), stack)


@contextlib.asynccontextmanager
async def client_of(*replicas: CoordinatorServer, job: str, ttl: float = 30.0) -> AsyncIterator[ts.Client]:
    client = await off_loop(ts.connect, [replica.address for replica in replicas], job, ttl)
    try:
        yield client
    finally:
        await off_loop(client.close)


async def until_true(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - it comes from the client's own thread
            await asyncio.sleep(0.01)


async def test_two_jobs_take_turns(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    async with client_of(replica, job="a") as a, client_of(replica, job="b") as b:
        first = await off_loop(a.acquire, "g", timeout=30)
        told: list[ts.Progress] = []
        second = asyncio.create_task(off_loop(b.acquire, "g", timeout=30, on_progress=told.append))
        await until_seen(replica, lambda: state_of(replica, "b") is not None)
        first.check()
        assert await off_loop(first.yield_) == 1
        turn = await second
        assert turn.token > first.token
        assert any(isinstance(progress, ts.Queued) for progress in told)
        with pytest.raises(ts.NotHolder):
            first.check()
        assert await off_loop(turn.yield_) == 0


async def test_a_job_that_was_on_last_is_served_at_once(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    async with client_of(replica, job="a") as client:
        tokens = []
        for _ in range(3):
            turn = await off_loop(client.acquire, "g", timeout=30)
            tokens.append(turn.token)
            await off_loop(turn.yield_)
        assert tokens == sorted(set(tokens))


async def test_refusals_have_their_classes(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    async with client_of(replica, job="a") as first, client_of(replica, job="a") as second:
        with pytest.raises(ts.NoSuchGroup):
            await off_loop(first.acquire, "nowhere", timeout=30)
        turn = await off_loop(first.acquire, "g", timeout=30)
        with pytest.raises(ts.AlreadyQueued):
            await off_loop(second.acquire, "g", timeout=30)
        joined = asyncio.create_task(off_loop(second.acquire, "g", timeout=30, if_held="wait"))
        await off_loop(turn.yield_)
        await off_loop((await joined).yield_)


async def test_a_timeout_leaves_no_ticket(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    async with client_of(replica, job="a") as a, client_of(replica, job="b") as b:
        turn = await off_loop(a.acquire, "g", timeout=30)
        with pytest.raises(ts.AcquireTimeout):
            await off_loop(b.acquire, "g", timeout=0.3)
        await until_seen(replica, lambda: state_of(replica, "b") is None)
        await off_loop(turn.yield_)


async def test_a_replica_leaves_under_a_holder_and_a_waiter(world: World) -> None:
    stays = await world.replica()
    leaves = await world.replica()
    await world.group(stays)
    async with client_of(leaves, stays, job="a") as a, client_of(leaves, stays, job="b") as b:
        turn = await off_loop(a.acquire, "g", timeout=30)
        waiting = asyncio.create_task(off_loop(b.acquire, "g", timeout=60))
        await until_seen(stays, lambda: state_of(stays, "b") is not None)
        await leaves.stop()
        turn.check()
        await off_loop(turn.yield_)
        await off_loop((await waiting).yield_)


async def test_a_client_that_stands_still_knows_that_it_lost_and_the_next_is_served(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    async with client_of(replica, job="a", ttl=2) as a, client_of(replica, job="b") as b:
        turn = await off_loop(a.acquire, "g", timeout=30)
        with stopped(helper_pid()):
            # Both clients beat by one helper, which stands still: b has a longer time to live.
            await until_true(lambda: turn.lost)
            assert state_of(replica, "a") is not None  # the holder knew first
        with pytest.raises(ts.TurnLost):
            turn.check()
        await off_loop((await off_loop(b.acquire, "g", timeout=60)).yield_)
        # And the one that lost may come again.
        await off_loop((await off_loop(a.acquire, "g", timeout=60)).yield_)


HOLDER = (
    "import sys, tsclient as ts\n"
    "turn = ts.acquire('g', timeout=60)\n"
    "print('held')\n"
    "sys.stdin.readline()\n"
    "try:\n    turn.check()\nexcept ts.LockLost:\n    print('lost')\n"
    "ts.acquire('g', timeout=60).yield_()\nprint('had it again')\n"
)


async def until_lost(replica: CoordinatorServer) -> None:
    """Wait until the resident's turn has ended other than by being given back: it may still run."""
    seen: set[Ended | None] = set()

    def lost() -> bool:
        kept = replica.engine.picture.turn("g")
        seen.add(kept.value.resident.ended if kept is not None and kept.value.resident else None)
        return Ended.LOST in seen

    await until_seen(replica, lost)


async def test_a_killed_holders_turn_is_lost_at_once_and_the_next_is_served(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    with child(HOLDER, [replica.address], TIMESLICE_TTL="600") as process:
        assert await off_loop(process.line) == "held"
        async with client_of(replica, job="b") as b:
            waiting = asyncio.create_task(off_loop(b.acquire, "g", timeout=60))
            await until_seen(replica, lambda: state_of(replica, "b") is not None)
            process.process.kill()
            await until_lost(replica)
            await off_loop((await waiting).yield_)


async def test_a_stopped_holders_turn_is_lost_with_its_session_and_it_may_come_again(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    with child(HOLDER, [replica.address], TIMESLICE_TTL="2") as process:
        assert await off_loop(process.line) == "held"
        async with client_of(replica, job="b") as b:
            waiting = asyncio.create_task(off_loop(b.acquire, "g", timeout=60))
            await until_seen(replica, lambda: state_of(replica, "b") is not None)
            with stopped(process.process.pid):
                await until_lost(replica)
                turn = await waiting
            process.enter()
            assert await off_loop(process.line) == "lost"
            await off_loop(turn.yield_)
            assert await off_loop(process.line) == "had it again"


async def test_an_operator_by_the_command_line(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    replica = await world.replica()
    await world.group(replica)

    async def timeslice(*arguments: str) -> int:
        return await off_loop(command.main, [*arguments, "--endpoints", replica.address])

    async with client_of(replica, job="a") as client:
        turn = await off_loop(client.acquire, "g", timeout=30)
        assert await timeslice("get", "groups") == Exit.DONE
        assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["g", "held", "a", "a"]
        assert await timeslice("get", "queue", "g", "-o", "json") == Exit.DONE
        assert [entry["job"] for entry in json.loads(capsys.readouterr().out)["queue"]] == ["a"]
        assert await timeslice("get", "nodes") == Exit.DONE
        assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["node-g", "up", "dev-g"]
        assert await timeslice("get", "jobs", "g") == Exit.DONE
        assert await timeslice("pause", "g") == Exit.DONE
        assert await timeslice("evict", "g", "a", "--why", "by hand") == Exit.DONE
        await until_true(lambda: turn.lost)
        with pytest.raises(ts.Evicted):
            turn.check()
        assert await timeslice("resume", "g") == Exit.DONE
        assert await timeslice("evict", "g", "nobody") in (Exit.NOT_FOUND, Exit.REFUSED)
        assert await timeslice("drain-node", "node-g") == Exit.DONE
        assert await timeslice("drain-node", "node-g", "--undo") == Exit.DONE
        assert await timeslice("unquarantine", "g", "nobody") == Exit.NOT_FOUND
        assert await timeslice("group", "put", "g", "--node", "node-g=dev-g,dev-g") == Exit.USAGE
        assert await timeslice("group", "put", "h", "--node", "node-typo=d0") == Exit.DONE
        assert "no agent of node node-typo is there" in capsys.readouterr().err
        assert await timeslice("group", "delete", "g", "--force") == Exit.DONE
