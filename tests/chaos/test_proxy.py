# SPDX-License-Identifier: Apache-2.0
"""The proxy's faults, seen from both ends of a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from chaos.proxy import CLEAR, SILENT, Condition, Link, Proxy

_WITHIN = 30.0
_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server:
    """Keeps the servers' ends of its connections, in the order in which they came."""

    def __init__(self) -> None:
        self.ends: asyncio.Queue[_Ends] = asyncio.Queue()
        self.endpoint = ""

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.ends.put((reader, writer))

    async def next(self) -> _Ends:
        async with asyncio.timeout(_WITHIN):
            return await self.ends.get()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    listening = await asyncio.start_server(found.take, "127.0.0.1", 0)
    found.endpoint = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield found
    listening.close()


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    async with Proxy(server.endpoint) as one:
        yield one


async def connect(proxy: Proxy) -> _Ends:
    host, _, port = proxy.endpoint.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def read(reader: asyncio.StreamReader, count: int) -> bytes:
    async with asyncio.timeout(_WITHIN):
        return await reader.readexactly(count)


async def ends(reader: asyncio.StreamReader) -> None:
    """Wait until the other end has reset the connection."""
    async with asyncio.timeout(_WITHIN):
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_both_directions_pass(proxy: Proxy, server: Server) -> None:
    reader, writer = await connect(proxy)
    there, back = await server.next()
    writer.write(b"a" * 100_000)
    assert await read(there, 100_000) == b"a" * 100_000
    back.write(b"answer")
    assert await read(reader, 6) == b"answer"
    writer.write_eof()
    async with asyncio.timeout(_WITHIN):
        assert await there.read() == b""
    back.write(b"last")  # a direction that has ended does not end the other
    assert await read(reader, 4) == b"last"


async def test_silence_keeps_what_is_sent_until_it_is_over(proxy: Proxy, server: Server) -> None:
    reader, writer = await connect(proxy)
    there, back = await server.next()
    proxy.up = SILENT
    writer.write(b"late")
    back.write(b"answer")
    assert await read(reader, 6) == b"answer"  # the other direction passes
    waiting = asyncio.ensure_future(there.readexactly(4))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    proxy.heal()
    async with asyncio.timeout(_WITHIN):
        assert await waiting == b"late"


async def test_a_silent_network_takes_no_connection(proxy: Proxy, server: Server) -> None:
    proxy.up = proxy.down = SILENT
    _, writer = await connect(proxy)
    writer.write(b"hello")
    await asyncio.sleep(0.05)
    assert server.ends.empty()
    proxy.heal()
    there, _there = await server.next()
    assert await read(there, 5) == b"hello"


async def test_half_open_the_server_knows_and_the_client_does_not(proxy: Proxy, server: Server) -> None:
    reader, writer = await connect(proxy)
    there, _there = await server.next()
    proxy.half_open()
    await ends(there)
    writer.write(b"into the void")
    await writer.drain()
    waiting = asyncio.ensure_future(reader.read(1))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    proxy.reset()
    async with asyncio.timeout(_WITHIN):
        with pytest.raises(ConnectionResetError):
            await waiting


async def test_a_reset_is_told_to_both(proxy: Proxy, server: Server) -> None:
    near, far = await connect(proxy), await server.next()
    proxy.reset()
    for reader, _ in (near, far):
        await ends(reader)


async def test_a_connection_is_cut_in_the_middle_of_what_is_sent(proxy: Proxy, server: Server) -> None:
    reader, writer = await connect(proxy)
    there, _there = await server.next()
    proxy.up = Condition(cut_after=5_000)
    writer.write(b"x" * 20_000)
    await ends(reader)
    got = 0
    async with asyncio.timeout(_WITHIN):
        try:
            while piece := await there.read(1 << 16):
                got += len(piece)
        except ConnectionResetError:
            pass  # a reset takes back what was not read yet
    assert got <= 5_000


async def test_a_slow_line_passes_no_more_than_its_rate(proxy: Proxy, server: Server) -> None:
    _, writer = await connect(proxy)
    there, _there = await server.next()
    loop = asyncio.get_running_loop()
    proxy.up = Condition(rate=100_000, delay=0.001)
    began = loop.time()
    writer.write(b"x" * 20_000)
    await read(there, 20_000)
    assert loop.time() - began >= 0.2
    proxy.up = CLEAR


async def test_where_nobody_listens_the_client_is_told() -> None:
    async with Proxy("127.0.0.1:1") as proxy:
        reader, _writer = await connect(proxy)
        async with asyncio.timeout(_WITHIN):
            with pytest.raises(ConnectionResetError):
                await reader.read()


def test_a_link_is_a_proxy_without_an_event_loop() -> None:
    link = Link("a and b", "127.0.0.1:1")
    link.start()
    link.set(up=SILENT)
    link.heal()
    link.reset()
    link.half_open()
    assert link.connections == 0
    link.close()
