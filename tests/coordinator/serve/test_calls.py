# SPDX-License-Identifier: Apache-2.0
"""The lock by plain calls, and by calls at different replicas."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from ledger.codec import decode
from ledger.records import Registered, TicketState
from tests.coordinator.serve.world import PROCESS, World, reason_of, refused, state_of, until_seen
from timeslice_proto.v1 import coordinator_pb2 as pb
from timeslice_proto.v1 import coordinator_pb2_grpc, records_pb2


async def opened(stub: coordinator_pb2_grpc.CoordinatorAsyncStub) -> pb.Opened:
    return await stub.OpenSession(pb.OpenRequest(process=PROCESS, ttl_ms=600_000))


def acquire_call(session: pb.Opened, job: str, sequence: int = 1, group: str = "g") -> pb.AcquireCall:
    acquire = pb.AcquireRequest(sequence=sequence, job=job, groups=[group])
    return pb.AcquireCall(session=session.session, secret=session.secret, acquire=acquire)


def yield_call(session: pb.Opened, job: str, token: int, sequence: int = 1) -> pb.YieldCall:
    one = pb.YieldRequest(sequence=sequence, job=job, group="g", token=token)
    return pb.YieldCall(session=session.session, secret=session.secret, **{"yield": one})


async def test_acquire_on_one_replica_and_yield_on_the_other(world: World) -> None:
    one, two = await world.replica(), await world.replica()
    await world.group(one)
    first, second = await world.stub(one), await world.stub(two)
    a, b = await opened(first), await opened(second)
    granted = await first.Acquire(acquire_call(a, "a"))
    token = granted.grants[0].token
    waiting = asyncio.ensure_future(second.Acquire(acquire_call(b, "b")))
    await until_seen(two, lambda: state_of(two, "b") is TicketState.WAITING)
    yielded = await second.Yield(yield_call(a, "a", token))
    assert (yielded.waiters, yielded.again) == (1, False)
    assert (await waiting).grants[0].token > token
    assert (await first.Yield(yield_call(a, "a", token))).again


async def test_promise_2_a_stale_yield_is_refused_and_changes_nothing(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    stub = await world.stub(replica)
    a, b = await opened(stub), await opened(stub)
    old = (await stub.Acquire(acquire_call(a, "a"))).grants[0].token
    await stub.Yield(yield_call(a, "a", old))
    token = (await stub.Acquire(acquire_call(b, "b"))).grants[0].token
    before = replica.engine.picture.turn("g")
    await stub.Yield(yield_call(b, "b", token))
    third = (await stub.Acquire(acquire_call(a, "a", sequence=2))).grants[0].token
    now = replica.engine.picture.turn("g")
    with pytest.raises(grpc.aio.AioRpcError) as stale:
        await stub.Yield(yield_call(a, "a", old))
    assert stale.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert reason_of(stale.value) == "STALE_TOKEN"
    assert await refused(stub.Yield(yield_call(b, "a", third))) == "NOT_HOLDER"
    after = replica.engine.picture.turn("g")
    assert before is not None and now is not None and after == now


async def test_a_cancelled_acquire_leaves_no_ticket(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    stub = await world.stub(replica)
    a, b = await opened(stub), await opened(stub)
    await stub.Acquire(acquire_call(a, "a"))
    call = stub.Acquire(acquire_call(b, "b"))
    await until_seen(replica, lambda: state_of(replica, "b") is TicketState.WAITING)
    call.cancel()
    await until_seen(replica, lambda: state_of(replica, "b") is None)
    assert state_of(replica, "a") is TicketState.GRANTED


async def test_an_acquire_past_its_deadline_leaves_no_ticket(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    stub = await world.stub(replica)
    a, b = await opened(stub), await opened(stub)
    await stub.Acquire(acquire_call(a, "a"))
    with pytest.raises(grpc.aio.AioRpcError) as late:
        await stub.Acquire(acquire_call(b, "b"), timeout=1.0)
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await until_seen(replica, lambda: state_of(replica, "b") is None)


async def test_a_refused_acquire_leaves_no_ticket(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    stub = await world.stub(replica)
    a, b = await opened(stub), await opened(stub)
    await stub.Acquire(acquire_call(a, "a"))
    waiting = asyncio.ensure_future(stub.Acquire(acquire_call(b, "b")))
    await until_seen(replica, lambda: state_of(replica, "b") is TicketState.WAITING)
    await stub.Evict(pb.EvictRequest(group="g", job="b"))
    assert await refused(waiting) == "EVICTED"
    await until_seen(replica, lambda: state_of(replica, "b") is None)
    assert await refused(stub.Acquire(acquire_call(b, "a"))) == "ALREADY_QUEUED"
    assert state_of(replica, "a") is TicketState.GRANTED


async def test_calls_need_the_secret(world: World) -> None:
    stub = await world.stub(await world.replica())
    a = await opened(stub)
    wrong = pb.Opened(session=a.session, secret="0" * 32)
    assert await refused(stub.Beat(pb.BeatRequest(session=a.session, secret="x"))) == "BAD_SECRET"
    assert await refused(stub.Acquire(acquire_call(wrong, "a"))) == "BAD_SECRET"
    assert await refused(stub.Yield(yield_call(wrong, "a", 1))) == "BAD_SECRET"
    assert await refused(stub.CloseSession(pb.CloseRequest(session=a.session, secret="x"))) == "BAD_SECRET"
    assert await refused(stub.Beat(pb.BeatRequest(session="no id", secret="x"))) == "SESSION_EXPIRED"


async def test_beats_prune_and_close_ends(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    stub = await world.stub(replica)
    a = await opened(stub)
    await stub.Acquire(acquire_call(a, "a"))
    beat = pb.BeatRequest(session=a.session, secret=a.secret, number=5, last_sequence=1, prune=True)
    assert (await stub.Beat(beat)).number == 5
    await until_seen(replica, lambda: state_of(replica, "a") is None)
    await stub.CloseSession(pb.CloseRequest(session=a.session, secret=a.secret))
    assert await refused(stub.Beat(beat)) == "SESSION_EXPIRED"


@pytest.mark.parametrize("live", [True, False])
async def test_a_session_that_ends_ends_its_blocking_acquire(
    world: World, monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    """Not live: as when the session has ended in an outage, and the list after it shows that."""
    replica = await world.replica()
    await world.group(replica)
    stub = await world.stub(replica)
    a, b = await opened(stub), await opened(stub)
    await stub.Acquire(acquire_call(a, "a"))
    waiting = asyncio.ensure_future(stub.Acquire(acquire_call(b, "b")))
    await until_seen(replica, lambda: state_of(replica, "b") is TicketState.WAITING)
    monkeypatch.setattr(replica.engine.picture, "_is_live", lambda: live)
    await (await world.etcd()).revoke(int(b.session, 16))
    assert await refused(waiting) == "SESSION_EXPIRED"


async def test_processes_are_registered_replaced_and_removed(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    stub, etcd = await world.stub(replica), await world.etcd()

    def request(*pids: int, group: str = "g", node: str = "node-g") -> pb.RegisterProcessesRequest:
        processes = [records_pb2.Process(boot_id="boot", pid=pid, start_time=9) for pid in pids]
        return pb.RegisterProcessesRequest(group=group, job="a", node=node, processes=processes)

    key = world.keys.registered("node-g", "g", "a")
    await stub.RegisterProcesses(request(1, 2))
    kv = await etcd.get(key)
    assert kv is not None and [one.pid for one in decode(Registered, kv.value).processes] == [1, 2]
    await stub.RegisterProcesses(request())
    assert await etcd.get(key) is None
    assert await refused(stub.RegisterProcesses(request(1, group="none"))) == "NO_SUCH_GROUP"
    assert await refused(stub.RegisterProcesses(request(1, node="else"))) == "NO_SUCH_NODE"
    assert await refused(stub.RegisterProcesses(request(1, 1))) == "BAD_REQUEST"
    assert await refused(stub.RegisterProcesses(request(*range(1, 5000)))) == "TOO_LARGE"
