# SPDX-License-Identifier: Apache-2.0
"""Replicas on a real etcd, clients that speak the plain protocol to them, and agents that obey."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.rpc import error_details_pb2, status_pb2

from coordinator.serve.server import CoordinatorServer, Settings
from ledger.etcd import EtcdClient
from ledger.keys import Keys
from ledger.records import Phase, ResidentKind, TicketState
from tests.coordinator.serve.process import CoordinatorProcess
from tests.support.scripted_agent import Answer, ScriptedAgent, obey
from timeslice_proto.v1 import coordinator_pb2 as pb
from timeslice_proto.v1 import coordinator_pb2_grpc, records_pb2

WITHIN = 30.0
PROCESS = records_pb2.Process(boot_id="boot", pid=7, start_time=70)


class Client:
    """A session's stream, as its client sees it."""

    def __init__(self, stub: coordinator_pb2_grpc.CoordinatorAsyncStub) -> None:
        self.call = stub.Session()
        self.session = self.secret = ""
        self.past: list[pb.SessionEvent] = []
        self._beats = 0

    async def send(self, **request: Any) -> None:
        await self.call.write(pb.SessionRequest(**request))

    async def open(self, ttl_ms: int = 600_000) -> pb.Opened:
        await self.send(open=pb.OpenRequest(process=PROCESS, ttl_ms=ttl_ms))
        opened: pb.Opened = await self.event("opened")
        self.session, self.secret = opened.session, opened.secret
        return opened

    async def resume(self, other: Client, **fields: Any) -> pb.Opened:
        self.session, self.secret = other.session, other.secret
        await self.send(resume=pb.ResumeSession(session=other.session, secret=other.secret, **fields))
        opened: pb.Opened = await self.event("opened")
        return opened

    async def beat(self, **fields: Any) -> pb.BeatConfirmed:
        self._beats += 1
        await self.send(beat=pb.BeatRequest(number=self._beats, **fields))
        confirmed: pb.BeatConfirmed = await self.event("beat")
        return confirmed

    async def acquire(self, sequence: int, job: str, group: str = "g", **fields: Any) -> None:
        await self.send(acquire=pb.AcquireRequest(sequence=sequence, job=job, groups=[group], **fields))

    async def give_back(self, sequence: int, job: str, token: int, group: str = "g") -> None:
        await self.send(**{"yield": pb.YieldRequest(sequence=sequence, job=job, group=group, token=token)})

    async def event(self, *kinds: str) -> Any:
        """The next event of one of these kinds; what comes before it goes to `past`."""
        async with asyncio.timeout(WITHIN):
            while True:
                event = await self.call.read()
                if event is grpc.aio.EOF:
                    raise AssertionError(f"the stream ended with {await self.call.code()} before {kinds}: {self.past}")
                kind = event.WhichOneof("event")
                if kind in kinds:
                    return getattr(event, kind)
                self.past.append(event)

    async def reason(self) -> str:
        """The reason of the stream's end."""
        try:
            async with asyncio.timeout(WITHIN):
                while (event := await self.call.read()) is not grpc.aio.EOF:
                    self.past.append(event)
        except grpc.aio.AioRpcError as error:
            return reason_of(error)
        return (await self.call.code()).name


class World:
    """A prefix, with replicas, agents and clients on demand; all end with the test."""

    def __init__(self, endpoints: tuple[str, ...], prefix: str, stack: contextlib.AsyncExitStack) -> None:
        self.endpoints, self.prefix, self.keys = endpoints, prefix, Keys(prefix)
        self._stack = stack

    async def etcd(self) -> EtcdClient:
        return await self._stack.enter_async_context(EtcdClient(self.endpoints))

    async def replica(self, **settings: Any) -> CoordinatorServer:
        ready = CoordinatorServer(Settings(self.endpoints, "127.0.0.1:0", prefix=self.prefix, **settings))
        return await self._stack.enter_async_context(ready)

    async def stub(self, replica: CoordinatorServer | CoordinatorProcess) -> coordinator_pb2_grpc.CoordinatorAsyncStub:
        channel = await self._stack.enter_async_context(grpc.aio.insecure_channel(replica.address))
        return coordinator_pb2_grpc.CoordinatorStub(channel)  # type: ignore[return-value]

    async def client(self, replica: CoordinatorServer | CoordinatorProcess, *, opened: bool = True) -> Client:
        client = Client(await self.stub(replica))
        if opened:
            await client.open()
        return client

    async def agent(self, node: str = "n0", devices: tuple[str, ...] = ("d0",), answer: Answer = obey) -> ScriptedAgent:
        agent = ScriptedAgent(await self.etcd(), self.keys, node, devices, answer)
        await agent.start()
        self._stack.push_async_callback(agent.close)
        return agent

    async def group(self, replica: CoordinatorServer, name: str = "g", answer: Answer = obey) -> None:
        """A group on one node of its own, known to be clear."""
        await self.agent(f"node-{name}", (f"dev-{name}",), answer)
        stub = await self.stub(replica)
        await until_seen(replica, lambda: f"node-{name}" in replica.engine.picture.nodes())
        await stub.PutGroup(put_request(name))
        await until_seen(replica, lambda: idle_and_known(replica, name))


def put_request(name: str, **nodes: list[str]) -> pb.PutGroupRequest:
    found = nodes or {f"node-{name}": [f"dev-{name}"]}
    return pb.PutGroupRequest(
        name=name,
        nodes=[records_pb2.NodeDevices(node=node, devices=devices) for node, devices in found.items()],
    )


def idle_and_known(replica: CoordinatorServer, name: str) -> bool:
    kept = replica.engine.picture.turn(name)
    return (
        kept is not None
        and kept.value.phase is Phase.IDLE
        and kept.value.resident is not None
        and kept.value.resident.kind is not ResidentKind.UNKNOWN
    )


def state_of(replica: CoordinatorServer, job: str, group: str = "g") -> TicketState | None:
    kept = replica.engine.picture.queue(group).get(job)
    return kept.value.state if kept is not None else None


async def until_seen(replica: CoordinatorServer, holds: Callable[[], bool]) -> None:
    """Wait until this replica's picture has what `holds` says, woken by its changes."""
    changed = asyncio.Event()
    end = replica.engine.subscribe(lambda _groups: changed.set())
    try:
        async with asyncio.timeout(WITHIN):
            while not holds():
                changed.clear()
                # A change of an agent that is in no group yet wakes nobody.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await changed.wait()
    finally:
        end()


def info_of(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo:
    """The ErrorInfo of a status; AssertionError if it has none."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            assert isinstance(value, bytes)
            status = status_pb2.Status.FromString(value)
            info = error_details_pb2.ErrorInfo()
            assert status.code == error.code().value[0]
            assert status.details[0].Unpack(info)
            assert info.domain == "timeslice"
            return info
    raise AssertionError(f"no ErrorInfo in {error!r}")


def reason_of(error: grpc.aio.AioRpcError) -> str:
    return info_of(error).reason


async def refused(call: Awaitable[Any]) -> str:
    """The reason by which a call is refused."""
    try:
        done = await call
    except grpc.aio.AioRpcError as error:
        return reason_of(error)
    raise AssertionError(f"it was not refused: {done}")
