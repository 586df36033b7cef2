# SPDX-License-Identifier: Apache-2.0
"""One background thread with an event loop: the session's stream, its timer and everything that touches it.

The thread is the only one that runs the session's code. A signal handler's exception (KeyboardInterrupt) can
come up in the main thread alone, so it can never leave the session half changed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import threading
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias, cast

import grpc.aio

from timeslice_proto.v1 import coordinator_pb2, coordinator_pb2_grpc
from tsclient.channel import from_aio_error, open_channel
from tsclient.clock import boottime
from tsclient.endpoints import Rotation
from tsclient.errors import ClientClosed, InternalError, TimesliceError, Unavailable
from tsclient.settings import Settings

_log = logging.getLogger("tsclient")

_Call: TypeAlias = "grpc.aio.StreamStreamCall[coordinator_pb2.SessionRequest, coordinator_pb2.SessionEvent]"


class Listener(Protocol):
    """Who lives in the thread: told of the stream, the time and the end. Never called from another thread."""

    def connected(self) -> None: ...
    def disconnected(self, error: TimesliceError) -> None: ...
    def event(self, event: coordinator_pb2.SessionEvent) -> None: ...
    def tick(self) -> None: ...
    def crashed(self, error: TimesliceError) -> None: ...


class Transport:
    """The thread. `post` and `join` may be called from any thread, all the rest only from its own."""

    def __init__(self, settings: Settings, listener: Listener, rng: random.Random) -> None:
        self._settings = settings
        self._listener = listener
        self._rotation = Rotation(settings.endpoints, rng)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._hung_up = asyncio.Event()
        self._why_hung_up = ""
        self._outgoing: asyncio.Queue[coordinator_pb2.SessionRequest] = asyncio.Queue()
        self._timer: asyncio.TimerHandle | None = None
        # Re-entrant, since a finalizer may post in the middle of a post.
        self._gate = threading.RLock()
        self._shut = False
        # A daemon: a program that ends without closing must not hang in waiting for it.
        self._thread = threading.Thread(target=self._run, name="tsclient", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # ------------------------------------------------------------ from any thread

    def post(self, step: Callable[[], None]) -> None:
        """Run it in the thread, after what was posted before.

        Raises:
            ClientClosed: the thread has ended.
        """
        with self._gate:
            if self._shut:
                raise ClientClosed("The client is closed.")
            self._loop.call_soon_threadsafe(step)

    def join(self, timeout: float) -> bool:
        """Wait for the thread's end, for `timeout` seconds at most; whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # ------------------------------------------------------------ from the thread

    def send(self, request: coordinator_pb2.SessionRequest) -> None:
        self._outgoing.put_nowait(request)

    def hang_up(self, why: str) -> None:
        self._why_hung_up = why
        self._hung_up.set()

    def worked(self) -> None:
        """The replica has greeted: the next failure is a first one again."""
        self._rotation.worked()

    def arm(self, at: float) -> None:
        """Have `tick` called at that time (boot-time clock, s); this replaces what was armed before."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at < math.inf:
            self._timer = self._loop.call_later(max(0.0, at - boottime()), self._listener.tick)

    def stop(self) -> None:
        self._stopping.set()

    # ------------------------------------------------------------ the thread itself

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(self._unhandled)
        try:
            self._loop.run_until_complete(self._keep_streaming())
        except Exception as error:  # noqa: BLE001 - nobody else would tell those who wait
            _log.exception("the client's thread ends by a fault of its own")
            self._listener.crashed(InternalError(f"The client's thread has failed: {error!r}."))
        finally:
            with self._gate:
                self._shut = True
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())  # and what was posted before
            self.arm(math.inf)
            self._loop.close()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """An exception in a posted step or a tick: the session cannot be trusted any more."""
        error = context.get("exception")
        if isinstance(error, BlockingIOError):
            return  # gRPC's poller woke the loop of another thread of this process for nothing
        loop.default_exception_handler(context)
        self._listener.crashed(InternalError(f"The client's thread has failed: {error or context['message']!r}."))
        self._stopping.set()

    async def _keep_streaming(self) -> None:
        stopping = asyncio.ensure_future(self._stopping.wait())
        while not self._stopping.is_set():
            endpoint, delay = self._rotation.next()
            if delay:
                await asyncio.wait({stopping}, timeout=delay)
            if not self._stopping.is_set():
                error = await self._stream(endpoint, stopping)
                _log.debug("the stream to %s has ended: %s", endpoint, error)
                if not self._stopping.is_set():
                    self._listener.disconnected(error)

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
            for task in (hung_up, writer):
                task.cancel()
            if not reader.done():
                reader.cancel()
                call.cancel()
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
        async for event in call:
            self._listener.event(event)
            if self._hung_up.is_set() or self._stopping.is_set():
                return

    async def _write(self, call: _Call) -> None:
        try:
            while True:
                await call.write(await self._outgoing.get())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            # The stream is over; the reader learns why, and says so.
            _log.debug("nothing more can be written: %s", error)
