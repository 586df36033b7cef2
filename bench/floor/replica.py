# SPDX-License-Identifier: Apache-2.0
"""The floor's replica, ``python -m bench.floor.replica --etcd … --listen … --script …``.

It serves the same stream as a coordinator. Each group is a queue in memory: that is all it knows. Where somebody waits,
a yield starts the script's hand-off, whose next step follows as soon as the watch brings the agent's answer.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec

from bench.floor.script import Script, Step
from bench.floor.writer import PREFIX, write
from ledger.etcd import EtcdClient, EventType, WatchBatch
from ledger.etcd.txn import Compare, absent, created_at, modified_at, prefix_empty
from timeslice_proto.v1 import coordinator_pb2

Event = coordinator_pb2.SessionEvent


class _Stream:
    """One session: its lease, and events in order."""

    def __init__(self, context: Any, lease: int) -> None:
        self._context, self.lease = context, lease
        self._writing = asyncio.Lock()

    async def tell(self, event: Event) -> None:
        async with self._writing:
            await self._context.write(event)


@dataclass(frozen=True, slots=True)
class _Place:
    """One acquire. ``revision`` is the create revision of its ticket."""

    stream: _Stream
    job: str
    sequence: int
    revision: int


@dataclass(slots=True)
class _Group:
    name: str
    nodes: tuple[str, ...]
    steps: tuple[Step, ...]
    turn_mod: int = 0
    token: int = 0
    holder: _Place | None = None
    incoming: _Place | None = None
    step: int = 0
    answers: int = 0
    waiting: deque[_Place] = field(default_factory=deque)
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)


class Replica:
    """See the module. Group ``g17`` is on node ``17 % nodes``, where the script does not say otherwise."""

    def __init__(self, client: EtcdClient, script: Script, nodes: int) -> None:
        self._client, self._script, self._nodes = client, script, nodes
        self._groups: dict[str, _Group] = {}
        self._steps: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------------------------------------- the stream

    def handler(self) -> grpc.GenericRpcHandler:
        """The one method that the floor serves."""
        session = grpc.stream_stream_rpc_method_handler(
            self._session,
            request_deserializer=coordinator_pb2.SessionRequest.FromString,
            response_serializer=Event.SerializeToString,
        )
        return grpc.method_handlers_generic_handler("timeslice.v1.Coordinator", {"Session": session})

    async def _session(self, _requests: Any, context: Any) -> None:
        first = await context.read()
        proof = await self._client.grant(max(first.open.ttl_ms // 1000, 10))
        stream = _Stream(context, proof.lease_id)
        opened = coordinator_pb2.Opened(session=f"{proof.lease_id:016x}", ttl_ms=first.open.ttl_ms, replica="floor")
        await stream.tell(Event(opened=opened))
        while isinstance(request := await context.read(), coordinator_pb2.SessionRequest):
            match request.WhichOneof("request"):
                case "acquire":
                    self._run(self._acquire(stream, request.acquire))
                case "yield":
                    self._run(self._yield(stream, getattr(request, "yield")))
                case "beat":
                    self._run(self._beat(stream, request.beat))
                case _:
                    return

    def _run(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._steps.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._steps.discard(task)
        task.result()  # a fault ends the floor by its log

    async def _beat(self, stream: _Stream, beat: coordinator_pb2.BeatRequest) -> None:
        proof = await self._client.beat(stream.lease)
        await stream.tell(Event(beat=coordinator_pb2.BeatConfirmed(number=beat.number, ttl_ms=proof.ttl * 1000)))

    async def _acquire(self, stream: _Stream, request: coordinator_pb2.AcquireRequest) -> None:
        group = self._group(request.groups[0])
        names = {"group": group.name, "in": request.job, "out": request.job}
        spec = absent(f"{PREFIX}groups/{group.name}/spec".encode())
        health = absent(f"{PREFIX}groups/{group.name}/jobs/{request.job}".encode())
        async with group.changing:
            if group.holder is None and group.incoming is None and not group.waiting:
                step = self._script.free
                guards = [self._turn(group), absent(_ticket(group, request.job)), health, spec]
                guards.append(prefix_empty(f"{PREFIX}groups/{group.name}/tickets/".encode()))
                revision = await write(self._client, step, names, group.nodes, guards, [], stream.lease)
                group.turn_mod = revision
                group.holder = _Place(stream, request.job, request.sequence, revision)
                await self._granted(group, group.holder, revision)
                return
            guards = [absent(_ticket(group, request.job)), health, spec]
            revision = await write(self._client, self._script.queue, names, group.nodes, guards, [], stream.lease)
            group.waiting.append(_Place(stream, request.job, request.sequence, revision))
            queued = coordinator_pb2.Queued(sequence=request.sequence, group=group.name, position=len(group.waiting))
        await stream.tell(Event(queued=queued))
        if group.holder is None and group.incoming is None:
            await self._begin(group, None)

    async def _yield(self, stream: _Stream, request: coordinator_pb2.YieldRequest) -> None:
        group = self._group(request.group)
        async with group.changing:
            holder = group.holder
            assert holder is not None, f"{request.job} yields what it does not hold"
            group.holder = None
            if not group.waiting:
                names = {"group": group.name, "in": holder.job, "out": holder.job}
                guards = [self._turn(group), created_at(_ticket(group, holder.job), holder.revision)]
                group.turn_mod = await write(self._client, self._script.back, names, group.nodes, guards, [])
        if group.waiting:
            await self._begin(group, holder)
        yielded = coordinator_pb2.Yielded(sequence=request.sequence, group=group.name, waiters=len(group.waiting))
        await stream.tell(Event(yielded=yielded))

    # ------------------------------------------------------------------------------------------------ the hand-off

    async def _begin(self, group: _Group, out: _Place | None) -> None:
        """The first step: the yield, which tells the nodes to prepare."""
        group.incoming, group.step = group.waiting.popleft(), 0
        job = out.job if out is not None else "nobody"
        guards = [created_at(_ticket(group, group.incoming.job), group.incoming.revision)]
        if out is not None:
            guards.append(created_at(_ticket(group, out.job), out.revision))
        await self._next(group, job, guards)

    async def _next(self, group: _Group, out: str, guards: list[Compare]) -> None:
        assert group.incoming is not None
        step = group.steps[group.step]
        names = {"group": group.name, "in": group.incoming.job, "out": out}
        group.step += 1
        revision = await write(self._client, step, names, group.nodes, [self._turn(group), *guards], [])
        group.turn_mod = revision
        if group.step == len(group.steps):
            group.holder, group.incoming = group.incoming, None
            await self._granted(group, group.holder, revision)

    def answered(self, name: str) -> None:
        """An agent has answered what the last step told it. With the last of them the next step follows."""
        group = self._groups[name]
        assert group.incoming is not None
        group.answers += 1
        if group.answers < len(group.nodes):
            return
        group.answers = 0
        last = group.step == len(group.steps) - 1
        guards = [created_at(_ticket(group, group.incoming.job), group.incoming.revision)] if last else []
        self._run(self._next(group, "", guards))

    async def _granted(self, group: _Group, place: _Place, token: int) -> None:
        group.token = token
        grant = coordinator_pb2.GroupGrant(group=group.name, token=token)
        granted = coordinator_pb2.Granted(sequence=place.sequence, grants=[grant], waited_ms=1)
        await place.stream.tell(Event(granted=granted))

    def _turn(self, group: _Group) -> Compare:
        return modified_at(f"{PREFIX}groups/{group.name}/turn".encode(), group.turn_mod)

    def _group(self, name: str) -> _Group:
        group = self._groups.get(name)
        if group is None:
            wide = self._script.wide.get(name)
            number = int("".join(filter(str.isdigit, name)) or 0)
            steps = tuple(step for step in self._script.steps(name) if not step.by_agent)
            group = self._groups[name] = _Group(name, wide.nodes if wide else (f"n{number % self._nodes}",), steps)
        return group


def _ticket(group: _Group, job: str) -> bytes:
    return f"{PREFIX}groups/{group.name}/tickets/{job}".encode()


async def _follow(client: EtcdClient, replica: Replica) -> None:
    """One watch of everything; each value is decoded, whatever it is."""

    async def take(batch: WatchBatch) -> None:
        for event in batch.events:
            if event.type is not EventType.PUT:
                continue
            msgspec.json.decode(event.kv.value)
            match event.kv.key[len(PREFIX) :].split(b"/"):
                case [b"nodes", _, b"acks", group]:
                    replica.answered(group.decode())
                case _:
                    pass

    async with client.watch(PREFIX.encode(), deliver=take) as watch:
        await watch.ended()


async def _serve(arguments: argparse.Namespace) -> None:
    client = EtcdClient(arguments.etcd.split(","))
    replica = Replica(client, Script.load(arguments.script), arguments.nodes)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((replica.handler(),))
    server.add_insecure_port(arguments.listen)
    await server.start()
    print("floor replica serves", flush=True)
    await _follow(client, replica)


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(prog="python -m bench.floor.replica")
    parser.add_argument("--etcd", required=True)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=1)
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
