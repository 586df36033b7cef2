# SPDX-License-Identifier: Apache-2.0
"""The NodeAgent service: one agent by itself, for people and for other schedulers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ledger.errors import BadName, LedgerError
from ledger.records import Process, ProcessRecord
from nodeagent.agent import NodeAgent
from nodeagent.backends.base import BackendError
from nodeagent.errors import AgentError
from nodeagent.standalone import GroupInCharge, NoSuchJob, NoSuchOperation, Operation, Standalone, State
from nodeagent.switch import Switch
from timeslice_proto.v1 import nodeagent_pb2 as pb
from timeslice_proto.v1 import nodeagent_pb2_grpc, records_pb2

if TYPE_CHECKING:
    _Context = grpc.aio.ServicerContext[Any, Any]

SERVICE = pb.DESCRIPTOR.services_by_name["NodeAgent"].full_name
_STOP_GRACE = 2.0
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a second agent on the same port is a mistake, not a way to share it
    # A client that went without a word is noticed after 15 s at most: see the coordinator's server.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
)
_LOOK_WITHIN = 10.0

_STATUS: dict[type[Exception], tuple[grpc.StatusCode, str]] = {
    BadName: (grpc.StatusCode.INVALID_ARGUMENT, "BAD_NAME"),
    GroupInCharge: (grpc.StatusCode.FAILED_PRECONDITION, "GROUP_IN_CHARGE"),
    NoSuchJob: (grpc.StatusCode.NOT_FOUND, "NO_SUCH_JOB"),
    NoSuchOperation: (grpc.StatusCode.NOT_FOUND, "NO_SUCH_OPERATION"),
    BackendError: (grpc.StatusCode.FAILED_PRECONDITION, "SWITCH_FAILED"),
}
"""Each error of the service, as a gRPC status and a reason of docs/errors.md."""

_STATES = {
    State.RUNNING: pb.OPERATION_STATE_RUNNING,
    State.DONE: pb.OPERATION_STATE_DONE,
    State.FAILED: pb.OPERATION_STATE_FAILED,
}


class NodeAgentService(nodeagent_pb2_grpc.NodeAgentServicer):
    """The calls, each mapped to `nodeagent.standalone`."""

    def __init__(self, agent: NodeAgent, standalone: Standalone) -> None:
        self._agent, self._standalone = agent, standalone

    async def Checkpoint(self, request: pb.CheckpointRequest, context: _Context) -> pb.Operation:  # noqa: N802
        async with _answering(context):
            return _operation(
                await self._standalone.checkpoint(request.job, tuple(request.pids), request.allowed_ms / 1000)
            )

    async def Restore(self, request: pb.RestoreRequest, context: _Context) -> pb.Operation:  # noqa: N802
        async with _answering(context):
            return _operation(await self._standalone.restore(request.job, request.allowed_ms / 1000))

    async def GetOperation(self, request: pb.GetOperationRequest, context: _Context) -> pb.Operation:  # noqa: N802
        async with _answering(context):
            return _operation(self._standalone.get(request.id))

    async def WatchOperation(  # noqa: N802
        self, request: pb.GetOperationRequest, context: _Context
    ) -> AsyncIterator[pb.Operation]:
        async with _answering(context):
            async for operation in self._standalone.watch(request.id):
                yield _operation(operation)

    async def Status(self, request: pb.StatusRequest, context: _Context) -> pb.StatusResponse:  # noqa: N802
        async with _answering(context):
            agent, state = self._agent, self._agent.journal.state
            use = await agent.backend.use([one.uuid for one in agent.devices], within=_LOOK_WITHIN)
            jobs = [one for records in agent.recorded().values() for one in records.jobs]
            return pb.StatusResponse(
                node=agent.config.node,
                backend=agent.backend.name,
                devices=[
                    pb.DeviceStatus(uuid=one.uuid, total_bytes=one.total_bytes, used_bytes=one.used_bytes)
                    for one in use
                ],
                jobs=[records_pb2.JobProcesses(job=one.job, processes=map(_record, one.processes)) for one in jobs],
                groups=[
                    pb.GroupStatus(group=name, highest_epoch=state.group(name).highest, doing=_doing(worker.switch))
                    for name, worker in sorted(agent.workers.items())
                ],
                registered=bool(agent.incarnation),
            )


def serving(listen: str | None) -> Callable[[NodeAgent], contextlib.AbstractAsyncContextManager[None]]:
    """Serve on ``listen`` (``host:port``) beside the agent; None: not at all. Raises OSError if it cannot."""

    @contextlib.asynccontextmanager
    async def beside(agent: NodeAgent) -> AsyncIterator[None]:
        if listen is None:
            yield
            return
        standalone = Standalone(agent)
        server = _server(listen, NodeAgentService(agent, standalone))
        await server.start()
        try:
            yield
        finally:
            await server.stop(_STOP_GRACE)
            await standalone.close()

    return beside


def _server(listen: str, service: NodeAgentService) -> grpc.aio.Server:
    server = grpc.aio.server(options=_OPTIONS)
    nodeagent_pb2_grpc.add_NodeAgentServicer_to_server(service, server)
    healthy = health.HealthServicer()
    for name in ("", SERVICE):
        healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        server.add_insecure_port(listen)
    except RuntimeError as error:
        raise OSError(f"{listen} cannot be listened on: choose another --listen") from error
    return server


@contextlib.asynccontextmanager
async def _answering(context: _Context) -> AsyncIterator[None]:
    try:
        yield
    except (AgentError, BackendError, LedgerError) as error:
        code, reason = _STATUS.get(type(error), (grpc.StatusCode.INTERNAL, "INTERNAL"))
        step = getattr(error, "next_step", "") or "See the node's log for the step that failed."
        await _abort(context, code, reason, str(error), step)


async def _abort(context: _Context, code: grpc.StatusCode, reason: str, message: str, step: str) -> NoReturn:
    info = any_pb2.Any()
    info.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="timeslice", metadata={"next_step": step}))
    status = status_pb2.Status(code=code_pb2.Code.Value(code.name), message=message, details=[info])
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    await context.abort(code, message)
    raise AssertionError("abort returns to nobody")


def _operation(one: Operation) -> pb.Operation:
    running = one.state is State.RUNNING
    return pb.Operation(
        id=one.id,
        job=one.job,
        state=_STATES[one.state],
        bytes_done=sum(done for done, _ in one.moved.values()),
        bytes_total=sum(total for _, total in one.moved.values()),
        elapsed_ms=round((time.monotonic() - one.began if running else one.elapsed) * 1000),
        error=one.error,
        reason="SWITCH_FAILED" if one.state is State.FAILED else "",
        processes=map(_record, one.processes),
    )


def _doing(switch: Switch) -> str:
    """What is in hand, and how far the copies have come."""
    moved = tuple(switch.moved.values())
    if not moved:
        return switch.doing
    done, total = (sum(one) for one in zip(*moved, strict=True))
    return f"{switch.doing}: {done} of {total} bytes"


def _record(one: ProcessRecord) -> records_pb2.ProcessRecord:
    return records_pb2.ProcessRecord(
        process=_process(one.process),
        state=records_pb2.ProcessState.Value(one.state.value),
        bytes=one.bytes,
        lost_session=_process(one.lost_session),
        out_of_turn=one.out_of_turn,
    )


def _process(one: Process | None) -> records_pb2.Process | None:
    return records_pb2.Process(boot_id=one.boot_id, pid=one.pid, start_time=one.start_time) if one else None
