# SPDX-License-Identifier: Apache-2.0
"""The NodeAgent service: checkpoint and restore by hand, and what it leaves alone."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from coordinator.errors import KINDS
from ledger.etcd.txn import Delete
from ledger.ports import ReservedPorts
from ledger.records import Outcome
from nodeagent import serve
from nodeagent.backends.sim import log
from nodeagent.backends.sim.faults import FaultKind
from tests.nodeagent.director import NODE, PREPARE, Director
from tests.nodeagent.simnode import DEADLINE
from timeslice_proto.v1 import nodeagent_pb2 as pb
from timeslice_proto.v1 import nodeagent_pb2_grpc, records_pb2


class Served:
    """The service's stub, and the operations' ends."""

    def __init__(self, channel: grpc.aio.Channel, address: str) -> None:
        self.stub: Any = nodeagent_pb2_grpc.NodeAgentStub(channel)
        self.channel, self.address = channel, address

    async def end(self, operation: pb.Operation) -> pb.Operation:
        last = operation
        async for last in self.stub.WatchOperation(pb.GetOperationRequest(id=operation.id), timeout=DEADLINE):
            assert last.id == operation.id
        assert last.state != pb.OPERATION_STATE_RUNNING
        return last

    async def checkpoint(self, job: str, *pids: int) -> pb.Operation:
        request = pb.CheckpointRequest(job=job, pids=pids)
        answer: pb.Operation = await self.stub.Checkpoint(request, timeout=DEADLINE)
        return answer

    async def restore(self, job: str) -> pb.Operation:
        answer: pb.Operation = await self.stub.Restore(pb.RestoreRequest(job=job), timeout=DEADLINE)
        return answer


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    with ReservedPorts(1) as reserved:
        address = f"127.0.0.1:{reserved.ports[0]}"
        async with grpc.aio.insecure_channel(address) as channel:
            yield Served(channel, address)


async def ready(boss: Director, served: Served) -> None:
    await boss.registered()
    await served.stub.Status(pb.StatusRequest(), timeout=DEADLINE, wait_for_ready=True)


def reason(error: grpc.aio.AioRpcError) -> str:
    """The reason of a status, which has a next step, too."""
    raw = next(value for name, value in error.trailing_metadata() if name == "grpc-status-details-bin")
    assert isinstance(raw, bytes)
    info = error_details_pb2.ErrorInfo()
    status_pb2.Status.FromString(raw).details[0].Unpack(info)
    assert info.metadata["next_step"]
    return str(info.reason)


async def test_a_round_trip_survives_the_agents_restart(boss: Director, served: Served) -> None:
    agent = boss.start_agent("--listen", served.address)
    a = boss.node.workload("a", group="").attach("SIM-0", nominal=1 << 20)
    await ready(boss, served)
    done = await served.end(await served.checkpoint("a"))
    assert (done.state, done.bytes_done, done.bytes_total) == (pb.OPERATION_STATE_DONE, 1 << 20, 1 << 20)
    a.send("touch SIM-0 1")
    assert a.blocked()

    agent.send_signal(signal.SIGTERM)
    assert agent.wait(DEADLINE) == 0
    boss.start_agent("--listen", served.address)
    await ready(boss, served)
    done = await served.end(await served.restore("a"))
    assert done.state == pb.OPERATION_STATE_DONE
    assert a.answer()["kernels"] == 1
    assert log.lost_bytes(boss.node.events()) == []


async def test_what_a_coordinator_has_is_left_alone(boss: Director, served: Served) -> None:
    boss.start_agent("--listen", served.address)
    a = boss.node.workload("a").attach("SIM-0")
    await ready(boss, served)
    await boss.switch(1, "b")
    for call in (served.restore("a"), served.checkpoint("a", a.pid)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert reason(caught.value) in ("NO_SUCH_JOB", "GROUP_IN_CHARGE")
    await boss.switch(2, "a")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.checkpoint("a")
    assert (caught.value.code(), reason(caught.value)) == (grpc.StatusCode.FAILED_PRECONDITION, "GROUP_IN_CHARGE")
    a.do("touch SIM-0 1")


async def test_a_failed_checkpoint_leaves_the_job_running(boss: Director, served: Served) -> None:
    boss.start_agent("--listen", served.address)
    fine = boss.node.workload("a", group="").attach("SIM-0")
    bad = boss.node.workload("a", group="").attach("SIM-0")
    boss.node.driver.fault(FaultKind.CHECKPOINT_FAILS, pid=bad.pid)
    await ready(boss, served)
    failed = await served.end(await served.checkpoint("a"))
    assert (failed.state, failed.reason) == (pb.OPERATION_STATE_FAILED, "SWITCH_FAILED")
    assert fine.intact("SIM-0")
    assert bad.intact("SIM-0")


async def test_a_slow_checkpoint_is_shown_and_not_begun_twice(boss: Director, served: Served) -> None:
    boss.start_agent("--listen", served.address)
    a = boss.node.workload("a", group="").attach("SIM-0", nominal=1000)
    boss.node.driver.fault(FaultKind.SLOW, job="a", times=1, ms=1000)
    await ready(boss, served)
    first = await served.checkpoint("a", a.pid)
    second = await served.checkpoint("a", a.pid)
    assert first.id == second.id
    seen = [
        one.bytes_done
        async for one in served.stub.WatchOperation(pb.GetOperationRequest(id=first.id), timeout=DEADLINE)
    ]
    assert seen == sorted(seen)
    assert any(0 < done < 1000 for done in seen)
    assert [one.name for one in boss.node.events()].count("checkpoint-begin") == 1


async def test_status_health_and_unknown_names(boss: Director, served: Served) -> None:
    boss.start_agent("--listen", served.address)
    boss.node.workload("a").attach("SIM-0", nominal=77)
    await ready(boss, served)
    await boss.switch(3, "a")
    status = await served.stub.Status(pb.StatusRequest(), timeout=DEADLINE)
    assert [(one.uuid, one.used_bytes) for one in status.devices] == [("SIM-0", 77), ("SIM-1", 0)]
    assert [(one.group, one.highest_epoch) for one in status.groups] == [("g", 3)]
    assert status.registered
    (job,) = status.jobs
    assert (job.job, job.processes[0].state) == ("a", records_pb2.PROCESS_STATE_RUNNING)
    stub: Any = health_pb2_grpc.HealthStub(served.channel)
    health = await stub.Check(health_pb2.HealthCheckRequest(service="timeslice.v1.NodeAgent"), timeout=DEADLINE)
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    calls: list[tuple[Any, str]] = [
        (served.stub.GetOperation(pb.GetOperationRequest(id="x"), timeout=DEADLINE), "NO_SUCH_OPERATION"),
        (served.restore("nobody"), "NO_SUCH_JOB"),
        (served.checkpoint("Not A Name"), "BAD_NAME"),
    ]
    for call, expected in calls:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert reason(caught.value) == expected


def test_each_error_has_the_status_of_the_one_table() -> None:
    """docs/errors.md is made of the coordinator's table, which the agent cannot import."""
    assert {reason: KINDS[reason].status for _, reason in serve._STATUS.values()} == {
        reason: status for status, reason in serve._STATUS.values()
    }


async def test_a_group_that_is_gone_leaves_nothing_running(boss: Director, served: Served) -> None:
    boss.start_agent("--listen", served.address)
    boss.node.workload("a").attach("SIM-0")
    await ready(boss, served)
    await boss.claim("SIM-0")
    await boss.switch(3, "a")
    gone = [key(NODE, boss.group) for key in (boss.keys.directive, boss.keys.ack, boss.keys.processes)]
    await boss.client.txn([], [Delete(key) for key in (*gone, boss.keys.claim(NODE, "SIM-0"))])
    async with asyncio.timeout(DEADLINE):
        while (await served.stub.Status(pb.StatusRequest(), timeout=DEADLINE)).groups:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.05)
    await boss.switch(5, "a")  # it may come again, and its epochs count from where they were
    assert (await boss.ask(PREPARE, 2, "a")).outcome is Outcome.STALE
