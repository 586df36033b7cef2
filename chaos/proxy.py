# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that stands between two parties and does to their connections what a bad network does.

    async with Proxy("127.0.0.1:2379") as proxy:      # clients connect to proxy.endpoint
        proxy.up = proxy.down = SILENT                # nothing passes, nobody is told: a partition
        proxy.heal()                                  # what was sent meanwhile arrives now, as TCP would have it

A fault acts at once, on the connections that there are and on those that come. `Link` is the same for a program without
an event loop. ``up`` is from the client to the server, ``down`` from the server to the client.
"""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from chaos import background

_PIECE = 64 << 10
_SLICE = 4 << 10
_CALL_SECONDS = 30.0
_T = TypeVar("_T")

# l_onoff, l_linger: close sends RST, and forgets what is not sent yet.
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Condition:
    """What happens to one direction of all connections.

    Attributes:
        silent: nothing passes; it is kept, and passes when that is over.
        delay: seconds that each piece is held back; those behind it wait for it.
        rate: bytes a second, at most.
        cut_after: both ends are reset after so many bytes more of one connection, in the middle of whatever is sent.
    """

    silent: bool = False
    delay: float = 0.0
    rate: float = math.inf
    cut_after: int | None = None


CLEAR = Condition()
SILENT = Condition(silent=True)


class Proxy:
    """Listens on ``endpoint`` and connects each client with ``target``.

    Args:
        host: to listen on.
        port: 0: one that is free.
    """

    def __init__(self, target: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._target, self._host, self._port = target, host, port
        self._up = self._down = CLEAR
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def endpoint(self) -> str:
        return f"{self._host}:{self._port}"

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    @property
    def up(self) -> Condition:
        return self._up

    @up.setter
    def up(self, condition: Condition) -> None:
        self._up = condition
        self._tell()

    @property
    def down(self) -> Condition:
        return self._down

    @down.setter
    def down(self, condition: Condition) -> None:
        self._down = condition
        self._tell()

    def heal(self) -> None:
        """No condition any more. Connections that are half-open or reset stay so: their ends have to notice."""
        self.up = self.down = CLEAR

    def reset(self) -> None:
        """Reset all connections: both ends are told, in the middle of whatever they send."""
        for one in tuple(self._connections):
            one.reset()

    def half_open(self) -> None:
        """The servers lose their connections, and the clients are not told: what they send goes nowhere."""
        for one in tuple(self._connections):
            one.half_open()

    async def start(self) -> None:
        """Listen. Raises OSError where that is not possible."""
        self._server = await asyncio.start_server(self._accept, self._host, self._port)
        self._port = int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """End all connections, and listen no more."""
        if self._server is not None:
            self._server.close()
        self.reset()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ------------------------------------------------------------------------------------------------ inside

    def _tell(self) -> None:
        """Wake the pumps that wait for other conditions."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name=f"proxy of {self._target}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        try:
            # A silent network takes no connections either.
            await self._while(lambda: self._up.silent or self._down.silent)
            upstream, sink = await asyncio.open_connection(host, int(port))
        except (OSError, asyncio.CancelledError):
            _reset(writer)
            return
        connection = _Connection(writer, sink)
        self._connections.add(connection)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(connection, reader, sink, lambda: self._up))
                group.create_task(self._pump(connection, upstream, writer, lambda: self._down))
        finally:
            self._connections.discard(connection)
            connection.reset()

    async def _pump(
        self,
        connection: _Connection,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        condition: Callable[[], Condition],
    ) -> None:
        """Pass on what comes, as the condition of this direction has it, until one end is gone."""
        passed = 0
        since = condition()
        try:
            while data := await source.read(_PIECE):
                for begin in range(0, len(data), _SLICE):
                    await self._while(lambda: condition().silent)
                    now = condition()
                    if now is not since:
                        passed, since = 0, now
                    piece = data[begin : begin + _SLICE]
                    if pause := now.delay + len(piece) / now.rate:
                        await asyncio.sleep(pause)
                    if now.cut_after is not None and passed + len(piece) > now.cut_after:
                        piece = piece[: now.cut_after - passed]
                        await _write(sink, piece)
                        connection.reset()
                        return
                    passed += len(piece)
                    if not connection.half:
                        await _write(sink, piece)
            if not connection.half:
                sink.write_eof()
        except OSError:
            # One end has reset the connection. The other learns of it, unless it is not to.
            if not connection.half:
                connection.reset()
        if connection.half:
            await connection.over.wait()

    async def _while(self, holds: Callable[[], bool]) -> None:
        while holds():
            await self._changed.wait()


class _Connection:
    """A client's end and a server's end. Hashed by identity."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._client, self._server = client, server
        self.half = False
        self.over = asyncio.Event()

    def reset(self) -> None:
        for one in (self._client, self._server):
            _reset(one)
        self.over.set()

    def half_open(self) -> None:
        self.half = True
        _reset(self._server)


def _reset(writer: asyncio.StreamWriter) -> None:
    if writer.transport.is_closing():
        return
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


async def _write(sink: asyncio.StreamWriter, piece: bytes) -> None:
    sink.write(piece)
    await sink.drain()


class Link:
    """A proxy for a program without an event loop: it runs in a thread beside it.

    Attributes:
        ends: who connects with whom, for people.
    """

    def __init__(self, ends: str, target: str, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.ends = ends
        self._proxy = self._in_loop(lambda: Proxy(target, host=host, port=port))

    @property
    def endpoint(self) -> str:
        return self._proxy.endpoint

    @property
    def connections(self) -> int:
        return self._proxy.connections

    def start(self) -> None:
        """Raises OSError."""
        background.call(self._proxy.start(), _CALL_SECONDS)

    def close(self) -> None:
        background.call(self._proxy.close(), _CALL_SECONDS)

    def set(self, *, up: Condition = CLEAR, down: Condition = CLEAR) -> None:
        """Both directions, from now on."""

        def change() -> None:
            self._proxy.up, self._proxy.down = up, down

        self._in_loop(change)

    def heal(self) -> None:
        self._in_loop(self._proxy.heal)

    def reset(self) -> None:
        self._in_loop(self._proxy.reset)

    def half_open(self) -> None:
        self._in_loop(self._proxy.half_open)

    def _in_loop(self, step: Callable[[], _T]) -> _T:
        async def there() -> _T:
            return step()

        return background.call(there(), _CALL_SECONDS)
