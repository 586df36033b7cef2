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
import gc
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio

from timeslice_proto.v1 import coordinator_pb2, coordinator_pb2_grpc, records_pb2
from timeslice_proto.v1.coordinator_pb2 import SessionEvent as Event
from timeslice_proto.v1.coordinator_pb2 import SessionRequest as Request

if TYPE_CHECKING:
    Call = grpc.aio.StreamStreamCall[Request, Event]

_BEATS_IN_TTL = 3
_RESUMES, _PAUSE = 20, 0.5
"""How often in a row a stream may break, and seconds until the next."""

_UNAVAILABLE: int = grpc.StatusCode.UNAVAILABLE.value[0]

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
        resumed: streams that broke and were followed by another.
    """

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    sent: int = 0
    received: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    resumed: int = 0


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
    """One job in one group: it waits for the turn, has it, and asks again. A stream that breaks is resumed.

    Attributes:
        placed: it has the turn or a place in the queue.
    """

    def __init__(self, load: _Load, channel: grpc.aio.Channel, group: _Group, job: str) -> None:
        self.placed = asyncio.Event()
        self._load, self._channel, self._group, self._job = load, channel, group, job
        self._opened = coordinator_pb2.Opened()
        self._sequence = 0
        self._writing = asyncio.Lock()
        self._call: Call | None = None
        self._asked: Request | None = None  # what is not answered yet
        self._turn: coordinator_pb2.HeldTurn | None = None

    async def run(self) -> None:
        """Never returns. Raises ConnectionError where its session or turn is lost, or no stream can be had."""
        process = records_pb2.Process(boot_id="bench", pid=1, start_time=1)
        open_ = coordinator_pb2.OpenRequest(process=process, ttl_ms=round(self._load.ttl * 1000))
        self._connect()
        self._opened = (await self._ask(Request(open=open_), "opened")).opened
        beats = asyncio.create_task(self._beat())
        beats.add_done_callback(_must_go_on)
        while True:
            self._sequence += 1
            acquire = coordinator_pb2.AcquireRequest(sequence=self._sequence, job=self._job, groups=[self._group.name])
            granted = (await self._ask(Request(acquire=acquire), "granted")).granted
            self._turn = coordinator_pb2.HeldTurn(
                sequence=self._sequence, job=self._job, group=self._group.name, token=granted.grants[0].token
            )
            self.placed.set()
            await self._load.going.wait()
            if self._load.hold:
                await asyncio.sleep(self._load.hold)
            request = Request()
            body = getattr(request, "yield")
            body.CopyFrom(
                coordinator_pb2.YieldRequest(
                    sequence=self._turn.sequence,
                    job=self._turn.job,
                    group=self._turn.group,
                    token=self._turn.token,
                )
            )
            self._group.yielded_at = time.monotonic()
            await self._ask(request, "yielded")
            self._turn = None

    async def _beat(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(self._load.ttl / _BEATS_IN_TTL)
            number += 1
            await self._send(Request(beat=coordinator_pb2.BeatRequest(number=number)))

    async def _ask(self, request: Request, answer: str) -> Event:
        """Send it, and again on each new stream, until it is answered."""
        self._asked = request
        await self._send(request)
        event = await self._until(answer)
        self._asked = None
        return event

    def _connect(self) -> None:
        stub = cast("coordinator_pb2_grpc.CoordinatorAsyncStub", coordinator_pb2_grpc.CoordinatorStub(self._channel))
        self._call = stub.Session()

    async def _send(self, request: Request) -> None:
        assert self._call is not None
        window = self._load.window
        window.sent += 1
        window.sent_bytes += request.ByteSize()
        try:
            async with self._writing:
                await self._call.write(request)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream is broken: whoever reads from it resumes, and says again what is not answered

    async def _until(self, kind: str) -> Event:
        while True:
            event = await self._read()
            window, what = self._load.window, event.WhichOneof("event")
            window.received += 1
            window.received_bytes += event.ByteSize()
            if what in ("queued", "switching"):
                self.placed.set()
            if what == "granted" and (began := self._group.yielded_at) is not None:
                self._group.yielded_at = None
                window.latencies.append(time.monotonic() - began)
            if what == "refused" and event.refused.code == _UNAVAILABLE and self._asked is not None:
                await asyncio.sleep(_PAUSE)
                await self._send(self._asked)  # which is what a real client does, as long as its caller waits
                continue
            if what in ("refused", "lost"):
                raise ConnectionError(f"{self._job} in {self._group.name}: {event}")
            if what == kind:
                return event

    async def _read(self) -> Event:
        """The next event, of this stream or of one by which the session is resumed."""
        for _ in range(_RESUMES):
            assert self._call is not None
            try:
                if isinstance(event := await self._call.read(), Event):
                    return event
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            await asyncio.sleep(_PAUSE)
            await self._resume()
        raise ConnectionError(f"the stream of {self._job} in {self._group.name} has ended {_RESUMES} times in a row")

    async def _resume(self) -> None:
        self._connect()
        self._load.window.resumed += 1
        asked = self._asked.WhichOneof("request") if self._asked is not None else ""
        if self._asked is not None and asked == "open":
            await self._send(self._asked)
            return
        resume = coordinator_pb2.ResumeSession(
            session=self._opened.session,
            secret=self._opened.secret,
            wanted=[self._asked.acquire] if self._asked is not None and asked == "acquire" else [],
            held=[self._turn] if self._turn is not None else [],
            last_sequence=self._sequence,
        )
        await self._send(Request(resume=resume))
        if self._asked is not None and asked == "yield":
            await self._send(self._asked)


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
    # Ten thousand streams are millions of objects: looking through them all would stop the clock of what is measured.
    gc.disable()
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
