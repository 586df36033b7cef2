# SPDX-License-Identifier: Apache-2.0
"""Many jobs' sessions in one process, straight over gRPC: ``python -m bench.load --endpoint … --groups g0 … --jobs 4``.

A session is a stream of its own, over a few shared channels; what a real job has beside it (a process, its helper) is
what would not fit on one machine thousands of times. Told on its standard input:

    open             →  ``opened N``: every session is open, one in each group has the turn, all others have a place
    go SECONDS       →  ``going``: whoever has a turn yields after so many seconds, and asks again at once
    rest             →  ``resting``: whoever has a turn keeps it
    window SECONDS   →  a line of JSON, `Window`

At the end of its input it ends, and its sessions with their leases.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import grpc.aio

from timeslice_proto.v1 import coordinator_pb2, coordinator_pb2_grpc, records_pb2
from timeslice_proto.v1.coordinator_pb2 import SessionEvent as Event
from timeslice_proto.v1.coordinator_pb2 import SessionRequest as Request

if TYPE_CHECKING:
    Call = grpc.aio.StreamStreamCall[Request, Event]

_BEATS_IN_TTL = 3
_OPENING = 32
"""Sessions that are being opened at a time."""


@dataclass(slots=True)
class Window:
    """What happened in a stretch of time.

    Attributes:
        seconds: how long it was.
        latencies: of each hand-off, from sending the yield until the next one's grant is here, seconds.
        sent, received: messages.
        sent_bytes, received_bytes: of their protobuf form.
    """

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    sent: int = 0
    received: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


@dataclass(slots=True)
class _Group:
    name: str
    yielded_at: float | None = None


class _Load:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.window = Window()
        self.hold = 0.0
        self.going = asyncio.Event()
        self.ttl: float = arguments.ttl
        endpoints = arguments.endpoint.split(",")
        # Channels to the same address share a connection unless they are told not to.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channels = [
            grpc.aio.insecure_channel(endpoints[n % len(endpoints)], options=options)
            for n in range(max(arguments.channels, len(endpoints)))
        ]
        groups = [_Group(name) for name in arguments.groups]
        self._sessions = [
            _Session(self, self._channels[(n * arguments.jobs + job) % len(self._channels)], group, f"job-{job}")
            for n, group in enumerate(groups)
            for job in range(arguments.jobs)
        ]
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        print("ready", flush=True)
        while line := await reader.readline():
            match line.decode().split():
                case ["open"]:
                    await self._open()
                    print(f"opened {len(self._sessions)}", flush=True)
                case ["go", seconds]:
                    self.hold = float(seconds)
                    self.going.set()
                    print("going", flush=True)
                case ["rest"]:
                    self.going.clear()
                    print("resting", flush=True)
                case ["window", seconds]:
                    print(json.dumps(dataclasses.asdict(await self._measure(float(seconds)))), flush=True)
                case other:
                    sys.exit(f"unknown command {other!r}")

    async def _measure(self, seconds: float) -> Window:
        self.window, began = Window(), time.monotonic()
        await asyncio.sleep(seconds)
        measured, self.window = self.window, Window()
        measured.seconds = time.monotonic() - began
        return measured

    async def _open(self) -> None:
        limit = asyncio.Semaphore(_OPENING)

        async def one(session: _Session) -> None:
            async with limit:
                task = asyncio.create_task(session.run())
                self._tasks.add(task)
                task.add_done_callback(_must_go_on)
                await session.placed.wait()

        await asyncio.gather(*map(one, self._sessions))


def _must_go_on(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        print(f"a session has failed: {error!r}", file=sys.stderr, flush=True)
        sys.exit(1)


class _Session:
    """One job in one group: it waits for the turn, has it, and asks again.

    Attributes:
        placed: it has the turn or a place in the queue.
    """

    def __init__(self, load: _Load, channel: grpc.aio.Channel, group: _Group, job: str) -> None:
        self.placed = asyncio.Event()
        self._load, self._channel, self._group, self._job = load, channel, group, job
        self._sequence = 0
        self._writing = asyncio.Lock()
        self._beats: asyncio.Task[None] | None = None

    async def run(self) -> None:
        stub = cast("coordinator_pb2_grpc.CoordinatorAsyncStub", coordinator_pb2_grpc.CoordinatorStub(self._channel))
        call = stub.Session()
        process = records_pb2.Process(boot_id="bench", pid=1, start_time=1)
        open_ = coordinator_pb2.OpenRequest(process=process, ttl_ms=round(self._load.ttl * 1000))
        await self._send(call, Request(open=open_))
        await self._until(call, "opened")
        self._beats = asyncio.create_task(self._beat(call))
        self._beats.add_done_callback(_must_go_on)
        while True:
            self._sequence += 1
            acquire = coordinator_pb2.AcquireRequest(sequence=self._sequence, job=self._job, groups=[self._group.name])
            await self._send(call, Request(acquire=acquire))
            granted = (await self._until(call, "granted")).granted
            self.placed.set()
            await self._load.going.wait()
            if self._load.hold:
                await asyncio.sleep(self._load.hold)
            request = Request()
            body = getattr(request, "yield")
            body.sequence, body.job, body.group = self._sequence, self._job, self._group.name
            body.token = granted.grants[0].token
            self._group.yielded_at = time.monotonic()
            await self._send(call, request)
            await self._until(call, "yielded")

    async def _beat(self, call: Call) -> None:
        number = 0
        while True:
            await asyncio.sleep(self._load.ttl / _BEATS_IN_TTL)
            number += 1
            await self._send(call, Request(beat=coordinator_pb2.BeatRequest(number=number)))

    async def _send(self, call: Call, request: Request) -> None:
        window = self._load.window
        window.sent += 1
        window.sent_bytes += request.ByteSize()
        async with self._writing:
            await call.write(request)

    async def _until(self, call: Call, kind: str) -> Event:
        while isinstance(event := await call.read(), Event):
            window, what = self._load.window, event.WhichOneof("event")
            window.received += 1
            window.received_bytes += event.ByteSize()
            if what in ("queued", "switching"):
                self.placed.set()
            if what == "granted" and (began := self._group.yielded_at) is not None:
                self._group.yielded_at = None
                window.latencies.append(time.monotonic() - began)
            if what in ("refused", "lost", "go_away"):
                raise ConnectionError(f"{self._job} in {self._group.name}: {event}")
            if what == kind:
                return event
        raise ConnectionError(f"the stream of {self._job} in {self._group.name} has ended")


def names(first: int, count: int) -> Sequence[str]:
    """Groups by number: ``g0``, ``g1``, …"""
    return [f"g{number}" for number in range(first, first + count)]


async def _run(arguments: argparse.Namespace) -> None:
    await _Load(arguments).run()


def main() -> None:
    """Follow what the standard input says, to its end."""
    parser = argparse.ArgumentParser(prog="python -m bench.load")
    parser.add_argument("--endpoint", required=True, help="one or more, with commas between them")
    parser.add_argument("--groups", nargs="+", required=True)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--channels", type=int, default=4)
    parser.add_argument("--ttl", type=float, default=60.0)
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
