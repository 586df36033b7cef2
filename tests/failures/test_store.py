# SPDX-License-Identifier: Apache-2.0
"""L8, L9, L10: etcd is restarted, compacted, or goes silent without a word; nobody loses a lock or misses a change."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable

import grpc.aio
import pytest

import tsclient.aio as ts
from coordinator.serve.server import CoordinatorServer
from ledger.embedded import EtcdCluster
from ledger.records import Outcome, TicketState
from tests.coordinator.serve.process import CoordinatorProcess
from tests.coordinator.serve.world import WITHIN, World, state_of, until_seen
from tests.nodeagent.director import COMMIT, PREPARE, RELEASE, Director, director
from tests.nodeagent.simnode import SimNode, stopped, until
from tests.support.proxy import Proxy
from timeslice_proto.v1 import coordinator_pb2 as pb


@contextlib.asynccontextmanager
async def behind_a_proxy(cluster: EtcdCluster, node: SimNode) -> AsyncIterator[tuple[Director, Proxy]]:
    """A director on a cluster of this test's own, whose agent reaches it through the proxy."""
    async with Proxy(cluster.endpoints[0]) as proxy, director(cluster.endpoints[0], b"/t/", node) as boss:
        boss.endpoint = proxy.endpoint
        yield boss, proxy


class Restless:
    """A waiter whose next beat is sent as soon as the last is answered: of several of them one is always on its way."""

    def __init__(self, world: World, replica: CoordinatorServer) -> None:
        self._world, self._replica = world, replica
        self.told: list[pb.SessionEvent] = []
        self.beats = 0

    async def queue(self, job: str) -> None:
        self._client = await self._world.client(self._replica)
        self._acquire = pb.AcquireRequest(sequence=1, job=job, groups=["g"])
        await self._client.send(acquire=self._acquire)
        await self._client.event("queued")

    async def run(self) -> None:
        while True:
            client = self._client
            try:
                await client.beat(last_sequence=1, wanted=[1])
                self.beats += 1
            except (AssertionError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
                # A replica may end a stream over which it could not serve, and then another is to be had.
                self._client = await self._world.client(self._replica, opened=False)
                await self._client.resume(client, last_sequence=1, wanted=[self._acquire])
            finally:
                self.told += client.past
                client.past.clear()


@pytest.mark.slow
async def test_l8_a_rolling_restart_of_etcd_costs_no_lock_and_no_place(etcd3members: EtcdCluster) -> None:
    """The keepalive stream of the replica that serves ends again and again, and so does etcd's leadership."""
    async with contextlib.AsyncExitStack() as stack:
        world = World(etcd3members.endpoints, "/t/", stack)
        replica = await world.replica()
        await world.group(replica)
        a, b = [
            await stack.enter_async_context(await ts.connect(replica.address, job=job, ttl=30)) for job in ("a", "b")
        ]
        turn = await a.acquire("g", timeout=WITHIN)
        waiting = asyncio.create_task(b.acquire("g", timeout=4 * WITHIN))
        await until_seen(replica, lambda: state_of(replica, "b") is TicketState.WAITING)
        restless = {job: Restless(world, replica) for job in ("c", "d", "e")}
        for job, one in restless.items():
            await one.queue(job)
        beating = asyncio.gather(*(one.run() for one in restless.values()))
        etcd = await world.etcd()
        before = [await etcd.get(world.keys.ticket("g", job)) for job in ("a", "b", *restless)]
        for member in range(3):
            await asyncio.to_thread(etcd3members.members[member].end, signal.SIGTERM)
            await asyncio.to_thread(etcd3members.restart, member)
            turn.check()
        assert not beating.done()
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        for one in restless.values():
            assert one.beats
            assert "lost" not in [event.WhichOneof("event") for event in one.told]
        after = [await etcd.get(world.keys.ticket("g", job)) for job in ("a", "b", *restless)]
        assert after == before  # not lost and made anew: the very same
        turn.check()
        await turn.yield_()
        await (await waiting).yield_()


async def test_l9_an_agent_that_stood_still_while_history_was_compacted_misses_no_directive(
    etcd_cluster: Callable[..., EtcdCluster], node: SimNode
) -> None:
    """What it was told meanwhile is no longer in etcd's history: only a list shows it."""
    async with behind_a_proxy(etcd_cluster(1), node) as (boss, proxy):
        agent = boss.start_agent("--ttl", "60")
        a = node.workload("a").attach("SIM-0")
        await boss.switch(1, "a")
        agent.send_signal(signal.SIGSTOP)
        until(lambda: stopped(agent.pid), "the agent stands still")
        await proxy.refuse()
        revision = await boss.tell(PREPARE, 2, "b")
        for number in range(10):
            later = await boss.client.put(b"/elsewhere", str(number).encode())
        await boss.client.compact(later.revision)
        await proxy.heal()
        agent.send_signal(signal.SIGCONT)
        assert (await boss.answer(revision)).outcome is Outcome.PREPARED
        # And it goes on hearing what is new.
        assert (await boss.ask(RELEASE, 2, "a")).outcome is Outcome.RELEASED
        a.do("touch SIM-0 1")


async def test_l9_an_agent_that_stood_still_takes_no_directive_for_current_that_was_deleted_meanwhile(
    etcd_cluster: Callable[..., EtcdCluster], node: SimNode
) -> None:
    """The neighbour: a compacted history hides an end as well. What it locked for that directive is unlocked."""
    async with behind_a_proxy(etcd_cluster(1), node) as (boss, proxy):
        agent = boss.start_agent("--ttl", "60")
        a = node.workload("a").attach("SIM-0")
        await boss.switch(1, "a")
        assert (await boss.ask(PREPARE, 2, "b", allowed_ms=600_000)).outcome is Outcome.PREPARED
        a.send("touch SIM-0 1")
        assert a.blocked()
        agent.send_signal(signal.SIGSTOP)
        until(lambda: stopped(agent.pid), "the agent stands still")
        await proxy.refuse()
        gone = await boss.client.delete(boss.keys.directive("n1", "g"))
        await boss.client.put(b"/elsewhere", b"")
        await boss.client.compact(gone.revision + 1)
        await proxy.heal()
        agent.send_signal(signal.SIGCONT)
        answer = await asyncio.to_thread(a.answer)  # the proxy is this loop's
        assert answer["kernels"] == 1


async def test_l9_a_replica_that_stood_still_while_history_was_compacted_tells_what_has_come_and_what_has_gone(
    etcd_cluster: Callable[..., EtcdCluster], coordinator_process: Callable[..., CoordinatorProcess]
) -> None:
    """Meanwhile its holder has left by another replica, and its waiter was granted: only a list shows either."""
    cluster = etcd_cluster(1)
    async with Proxy(cluster.endpoints[0]) as proxy, contextlib.AsyncExitStack() as stack:
        world = World(cluster.endpoints, "/t/", stack)
        other = await world.replica()
        await world.group(other)
        still = await asyncio.to_thread(coordinator_process, (proxy.endpoint,), world.prefix)
        a, b = await world.client(still), await world.client(still)
        await a.acquire(1, "a")
        await a.event("granted")
        await b.acquire(1, "b")
        await b.event("queued")
        still.process.send_signal(signal.SIGSTOP)
        until(lambda: stopped(still.process.pid), "the replica stands still")
        await proxy.refuse()
        await (await world.stub(other)).CloseSession(pb.CloseRequest(session=a.session, secret=a.secret))
        await until_seen(other, lambda: state_of(other, "b") is TicketState.GRANTED)
        etcd = await world.etcd()
        await etcd.compact((await etcd.put(b"/elsewhere", b"")).revision)
        await proxy.heal()
        still.process.send_signal(signal.SIGCONT)
        token = (await b.event("granted")).grants[0].token
        assert await a.reason() == "SESSION_EXPIRED"
        # And it goes on hearing what is new.
        await b.give_back(1, "b", token)
        await b.event("yielded")


async def test_l10_an_agent_whose_connection_has_gone_silent_finds_another(
    etcd_cluster: Callable[..., EtcdCluster], node: SimNode
) -> None:
    """Half-open: no reset, no answer. Only pings tell; a new connection works at once."""
    async with behind_a_proxy(etcd_cluster(1), node) as (boss, proxy):
        boss.start_agent("--ttl", "60")
        a = node.workload("a").attach("SIM-0")
        await boss.switch(1, "a")
        assert (await boss.ask(PREPARE, 2, "b", allowed_ms=600_000)).outcome is Outcome.PREPARED
        proxy.silence_open()
        assert (await boss.ask(COMMIT, 2, "b", allowed_ms=600_000)).outcome is Outcome.COMMITTED
        a.send("touch SIM-0 1")
        assert a.blocked()


async def test_l10_replica_and_agent_whose_connections_have_gone_silent_find_others(
    etcd_cluster: Callable[..., EtcdCluster],
) -> None:
    """A holder's beats and a waiter's grant pass over them: the turn stays, and the hand-off comes."""
    async with Proxy(etcd_cluster(1).endpoints[0]) as proxy, contextlib.AsyncExitStack() as stack:
        world = World((proxy.endpoint,), "/t/", stack)
        replica = await world.replica()
        await world.group(replica)
        a, b = [
            await stack.enter_async_context(await ts.connect(replica.address, job=job, ttl=30)) for job in ("a", "b")
        ]
        turn = await a.acquire("g", timeout=WITHIN)
        waiting = asyncio.create_task(b.acquire("g", timeout=2 * WITHIN))
        await until_seen(replica, lambda: state_of(replica, "b") is TicketState.WAITING)
        proxy.silence_open()
        await turn.yield_()
        await (await waiting).yield_()
