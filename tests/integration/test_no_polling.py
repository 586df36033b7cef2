# SPDX-License-Identifier: Apache-2.0
"""A hundred waiters cost etcd their heartbeats, and nothing else: nobody asks whether something has changed."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import grpc.aio
import pytest

from chaos.world import World
from ledger.etcd import EtcdClient
from tests.support.metrics import by_method
from timeslice_proto.v1 import coordinator_pb2 as pb
from timeslice_proto.v1 import coordinator_pb2_grpc
from tsclient.identity import this_process

WAITERS = 100
TTL = 9.0
BEAT = TTL / 3
BEATS = 5  # of each session in the time that is looked at
OTHERS = 30  # the most keepalives of two replicas and an agent in that time
WITHIN = 60.0


@pytest.fixture
def world() -> Iterator[World]:
    with World(replicas=2, nodes=1) as running:
        yield running


class Job:
    """A session that wants a turn, as the client library has it: one stream, a beat every third of its TTL."""

    def __init__(self, stub: coordinator_pb2_grpc.CoordinatorAsyncStub, job: str, group: str) -> None:
        self._job, self._group = job, group
        self._stream = stub.Session()
        self._number = 0

    async def acquire(self, until: str) -> None:
        """Returns once it is told that it is queued, or granted."""
        opening = pb.OpenRequest(process=this_process(), ttl_ms=int(TTL * 1000))
        await self._stream.write(pb.SessionRequest(open=opening))
        await self._told("opened")
        wish = pb.AcquireRequest(sequence=1, job=self._job, groups=[self._group])
        await self._stream.write(pb.SessionRequest(acquire=wish))
        await self._told(until)

    async def beat(self) -> None:
        """Returns once etcd has confirmed it."""
        self._number += 1
        beat = pb.BeatRequest(number=self._number, last_sequence=1, wanted=[1], prune=True)
        await self._stream.write(pb.SessionRequest(beat=beat))
        await self._told("beat")

    async def _told(self, what: str) -> None:
        async with asyncio.timeout(WITHIN):
            while (event := await self._stream.read()) is not grpc.aio.EOF:
                assert isinstance(event, pb.SessionEvent)
                if event.WhichOneof("event") == what:
                    return
                assert event.WhichOneof("event") in ("queued", "switching"), event
        raise AssertionError(f"the stream of {self._job} ended before it was told {what}")


@contextlib.asynccontextmanager
async def queue(world: World) -> AsyncIterator[list[Job]]:
    """One that holds the turn and goes on holding it, and a hundred that wait."""
    async with contextlib.AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(one)) for one in world.endpoints]
        stubs = [coordinator_pb2_grpc.CoordinatorStub(channel) for channel in channels]
        holder, *others = [Job(stubs[i % len(stubs)], f"job-{i}", world.group) for i in range(1 + WAITERS)]
        await holder.acquire("granted")
        await asyncio.gather(*(one.acquire("queued") for one in others))
        yield [holder, *others]


def requests(world: World) -> Counter[str]:
    """What etcd has been asked so far; of streams, each message."""
    (member,) = world.etcd.members
    return by_method(member, "grpc_server_msg_received_total")


@pytest.mark.slow
async def test_a_hundred_waiters_cost_etcd_their_heartbeats_alone(world: World) -> None:
    async with queue(world) as every, EtcdClient(world.etcd.endpoints) as client:
        queued = (await client.get_prefix(b"/timeslice/groups/")).revision
        await asyncio.gather(*(one.beat() for one in every))
        before = requests(world)
        for _ in range(BEATS):
            pause = asyncio.create_task(asyncio.sleep(BEAT))  # the client's own rhythm
            await asyncio.gather(*(one.beat() for one in every))
            await pause
        asked = requests(world) - before
        keepalives = asked.pop("LeaseKeepAlive")
        assert asked == Counter(), "something was read, written or watched while nothing happened"
        assert len(every) * BEATS <= keepalives <= len(every) * BEATS + OTHERS
        assert (await client.get_prefix(b"/timeslice/groups/")).revision == queued
        # And the one read of the line above is seen: so would have been any other.
        asked = requests(world) - before
        del asked["LeaseKeepAlive"]
        assert asked == Counter({"Range": 1})
