# SPDX-License-Identifier: Apache-2.0
"""The session's stream and its timer, in the event loop that it was made in."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from typing import Any, Literal, Protocol, TypeAlias, cast

import grpc.aio

from timeslice_proto.v1 import coordinator_pb2, coordinator_pb2_grpc
from tsclient import failpoint
from tsclient.channel import from_aio_error, open_channel
from tsclient.clock import boottime
from tsclient.endpoints import Rotation, no_coordinator
from tsclient.errors import TimesliceError, Unavailable
from tsclient.settings import Settings

SETTLED = 1.0  # s from a replica's greeting until it counts as one that works

_log = logging.getLogger("tsclient")

_Call: TypeAlias = "grpc.aio.StreamStreamCall[coordinator_pb2.SessionRequest, coordinator_pb2.SessionEvent]"


class Listener(Protocol):
    """Told of the stream, the time and a fault, always in the loop."""

    def connected(self) -> None: ...
    def disconnected(self, error: TimesliceError) -> None: ...
    def event(self, event: coordinator_pb2.SessionEvent) -> None: ...
    def tick(self) -> None: ...
    def crashed(self, error: Exception) -> None: ...


class Transport:
    """One session's streams, one after the other. Made and used in one event loop."""

    def __init__(self, settings: Settings, listener: Listener, rng: random.Random) -> None:
        self._settings = settings
        self._listener = listener
        self._rotation = Rotation(settings.endpoints, rng)
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._hung_up = asyncio.Event()
        self._why_hung_up = ""
        self._greeted = math.inf
        self._outgoing: asyncio.Queue[coordinator_pb2.SessionRequest] = asyncio.Queue()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._main_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._main_task = self._loop.create_task(self._main(), name="tsclient stream")

    async def stopped(self) -> None:
        """Wait until the stream is gone."""
        if self._main_task is not None:
            await asyncio.wait({self._main_task})

    def send(self, request: coordinator_pb2.SessionRequest) -> None:
        self._outgoing.put_nowait(request)

    def hang_up(self, why: str) -> None:
        self._why_hung_up = why
        self._hung_up.set()

    def worked(self) -> None:
        """The replica has greeted. If the stream lasts, the next failure is a first one again."""
        self._greeted = boottime()

    def arm(self, at: float) -> None:
        """Have `tick` called at that time (boot-time clock, s); this replaces what was armed before."""
        if at == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = at
        if at < math.inf:
            self._timer = self._loop.call_later(max(0.0, at - boottime()), self._tick)

    def stop(self) -> None:
        self._stopping.set()

    # ------------------------------------------------------------ its own

    def _tick(self) -> None:
        """After a fault in a step the session cannot be trusted any more."""
        self._timer, self._timer_at = None, math.inf
        try:
            self._listener.tick()
        except Exception as error:  # noqa: BLE001 - nobody else would tell those who wait
            self._crash(error)

    def _crash(self, error: Exception) -> None:
        _log.error("the client ends by a fault of its own", exc_info=error)
        self._listener.crashed(error)

    async def _main(self) -> None:
        try:
            await self._keep_streaming()
        except Exception as error:  # noqa: BLE001 - as above
            self._crash(error)
        finally:
            self.arm(math.inf)

    async def _keep_streaming(self) -> None:
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            while not self._stopping.is_set():
                endpoint, delay = self._rotation.next()
                if delay:
                    await asyncio.wait({stopping}, timeout=delay)
                if self._stopping.is_set():
                    return
                self._greeted = math.inf
                error = await self._stream(endpoint, stopping)
                if not self._rotation.ended(error) and no_coordinator(error):
                    error = Unavailable(f"{endpoint} does not answer as a coordinator: {error.message}")
                # One that ends as soon as it is used would else be opened again and again, without a pause.
                if boottime() - self._greeted >= SETTLED:
                    self._rotation.worked()
                _log.debug("the stream to %s has ended: %s", endpoint, error)
                if not self._stopping.is_set():
                    self._listener.disconnected(error)
        finally:
            stopping.cancel()

    async def _stream(self, endpoint: str, stopping: asyncio.Future[Literal[True]]) -> TimesliceError:
        """One stream, from the greeting to its end; why it ended."""
        self._outgoing = asyncio.Queue()
        self._hung_up.clear()
        async with open_channel(endpoint, self._settings) as channel:
            stub = cast("coordinator_pb2_grpc.CoordinatorAsyncStub", coordinator_pb2_grpc.CoordinatorStub(channel))
            call = stub.Session()
            self._listener.connected()
            reader = asyncio.ensure_future(self._read(call))
            writer = asyncio.ensure_future(self._write(call))
            hung_up = asyncio.ensure_future(self._hung_up.wait())
            ends: set[asyncio.Future[Any]] = {reader, hung_up, stopping}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            call.cancel()
            for task in (reader, writer, hung_up):
                task.cancel()
            ended = await asyncio.gather(reader, writer, hung_up, return_exceptions=True)
        match ended[0]:
            case grpc.aio.AioRpcError() as error:
                return from_aio_error(error, endpoint)
            case Exception() as error:
                raise error
            case _ if self._hung_up.is_set():
                return Unavailable(f"The stream to {endpoint} was given up: {self._why_hung_up}.")
            case _:
                return Unavailable(f"{endpoint} has ended the stream.")

    async def _read(self, call: _Call) -> None:
        while isinstance(event := await call.read(), coordinator_pb2.SessionEvent):
            if failpoint.armed():
                failpoint.hit(f"client.{event.WhichOneof('event')}.heard")
            self._listener.event(event)
            if failpoint.armed():
                failpoint.hit(f"client.{event.WhichOneof('event')}.told")
            if self._hung_up.is_set() or self._stopping.is_set():
                return

    async def _write(self, call: _Call) -> None:
        try:
            while True:
                request = await self._outgoing.get()
                await call.write(request)
                if failpoint.armed():
                    failpoint.hit(f"client.{request.WhichOneof('request')}.sent")
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            # The stream is over; the reader learns why, and says so.
            _log.debug("nothing more can be written: %s", error)
