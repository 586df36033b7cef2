# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy with the faults that a network has: silence, lost answers, delay, refused and cut connections."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Proxy:
    """`async with Proxy("127.0.0.1:2379") as proxy:` listens on `proxy.endpoint`. Faults act at once."""

    def __init__(self, target: str) -> None:
        self.point_to(target)
        self._server: asyncio.Server | None = None
        self._port = 0
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.held = 0
        self._pass_up = asyncio.Event()
        self._pass_down = asyncio.Event()
        self.release()
        self._to_server = True
        self._to_client = True

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._port}"

    def point_to(self, target: str) -> None:
        """New connections go to `target`."""
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))

    def silence(self) -> None:
        """From now on nothing passes, and nobody is told: a half-open connection. New ones are silent, too."""
        self._to_server = self._to_client = False

    def silence_open(self) -> None:
        """As `silence`, of the connections that are open. New ones are sound: only who leaves the old one is served."""
        self.hold()
        self._pass_up, self._pass_down = asyncio.Event(), asyncio.Event()
        self.release()

    def lose_answers(self) -> None:
        """From now on requests arrive and their answers do not."""
        self._to_client = False

    def hold(self) -> None:
        """Delay everything until `release`. `held` counts what has come since, in pieces."""
        self.held = 0
        self.hold_requests()
        self.hold_answers()

    def hold_requests(self) -> None:
        self._pass_up.clear()

    def hold_answers(self) -> None:
        self._pass_down.clear()

    def release(self) -> None:
        self._pass_up.set()
        self._pass_down.set()

    def release_answers(self) -> None:
        self._pass_down.set()

    async def refuse(self) -> None:
        """Cut all connections and refuse new ones, until `heal`."""
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Reset all connections."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def heal(self) -> None:
        """Serve again. What was lost on open connections stays lost, so those are reset."""
        self.cut()
        self._to_server = self._to_client = True
        await self._listen()

    async def _listen(self) -> None:
        if self._server is None or not self._server.is_serving():
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
            self._port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        for source, sink, upwards in ((reader, back, True), (there, writer, False)):
            pump = asyncio.create_task(self._pump(source, sink, upwards))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, upwards: bool) -> None:
        passing = self._pass_up if upwards else self._pass_down
        try:
            while chunk := await source.read(1 << 16):
                self.held += not passing.is_set()
                await passing.wait()
                if self._to_server if upwards else self._to_client:
                    sink.write(chunk)
                    await sink.drain()
        except ConnectionError:
            pass  # The other side is told below, which is all that a proxy can do.
        finally:
            self._writers.discard(sink)
            sink.transport.abort()

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for pump in tuple(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
