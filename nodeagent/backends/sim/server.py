# SPDX-License-Identifier: Apache-2.0
"""The simulated device's Unix socket: a JSON object a line, each answered by one; progress is told in between."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import struct
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodeagent.backends.sim.faults import Fault, FaultKind
from nodeagent.backends.sim.target import DeviceError, Target

if TYPE_CHECKING:
    from nodeagent.backends.sim.device import SimulatedDevice

_PEERCRED = struct.Struct("3i")

_REFUSED = (DeviceError, KeyError, ValueError, TypeError)


def _refusal(error: Exception) -> dict[str, Any]:
    if isinstance(error, DeviceError):
        return {"error": error.why, "final": error.final, "no_context": error.no_context}
    return {"error": f"malformed request: {error!r}", "final": False, "no_context": False}


class Connection(asyncio.Protocol):
    """One client of the socket: a workload, a driver, or a test that wants faults. Its calls are made in turn."""

    def __init__(self, device: SimulatedDevice, open_ones: set[Connection]) -> None:
        self._device, self._open = device, open_ones
        self._asked: deque[bytes] = deque()
        self._heard = bytearray()  # of a line that has not ended yet
        self._in_hand: asyncio.Task[None] | None = None
        self._target: Target | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        peer: socket.socket = transport.get_extra_info("socket")
        self._pid = _PEERCRED.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size))[0]
        self._open.add(self)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        if b"\n" in data:
            *lines, rest = bytes(self._heard).split(b"\n")
            self._heard = bytearray(rest)
            self._asked.extend(lines)
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        self._asked.clear()
        if self._in_hand is None:
            self._hang_up()

    def end(self) -> None:
        """The device is switched off."""
        self._transport.abort()
        if self._in_hand is not None:
            self._in_hand.cancel()
        self._hang_up()

    def _go_on(self) -> None:
        """Answer what can be answered at once, and begin what takes its time."""
        while self._asked and self._in_hand is None:
            request = json.loads(self._asked.popleft())
            if request.get("op") == "look":
                self._send(self._look(request))
            else:
                self._in_hand = asyncio.create_task(self._serve(request))

    async def _serve(self, request: dict[str, Any]) -> None:
        try:
            self._send(await self._answer(request))
        except BaseException:
            self._transport.abort()  # who waits for the answer is to know
            raise
        finally:
            self._in_hand = None
            if self._transport.is_closing():
                self._hang_up()
            else:
                self._go_on()

    def _hang_up(self) -> None:
        target, self._target = self._target, None
        if target is not None:
            target.connections -= 1
            if not target.connections:
                self._device.forget(target)

    def _look(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"ok": self._device.look(request["devices"], request["of"], request["pids"])}
        except _REFUSED as error:
            return _refusal(error)

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"ok": await self._call(request)}
        except _REFUSED as error:
            return _refusal(error)

    async def _call(self, request: dict[str, Any]) -> Any:
        device = self._device
        match request["op"]:
            case "attach":
                data = base64.b64decode(request["data"])
                return await device.attach(self._peer(), request["device"], data, int(request.get("bytes", 0)))
            case "touch":
                return await device.touch(self._peer(), request["device"], float(request["ms"]))
            case "checksum":
                return await device.read_checksum(self._peer(), request["device"])
            case "free":
                return await device.free(self._peer(), request["device"])
            case "devices":
                return [{"uuid": one, "total": device.shape.capacity} for one in device.shape.devices]
            case "check":
                return device.check(device.target(request["pid"]))
            case "lock":
                return await device.lock(device.target(request["pid"]), int(request["timeout_ms"]))
            case "checkpoint":
                return await device.checkpoint(device.target(request["pid"]), self._send)
            case "restore":
                return await device.restore(device.target(request["pid"]), self._send)
            case "unlock":
                return await device.unlock(device.target(request["pid"]))
            case "fault":
                wish = {key: value for key, value in request.items() if key not in ("op", "kind")}
                return device.faults.add(Fault(FaultKind(request["kind"]), **wish))
            case "clear-faults":
                return await device.faults.clear()
            case unknown:
                raise DeviceError(f"there is no call {unknown!r}")

    def _peer(self) -> Target:
        if self._target is None:
            self._target = self._device.target_of_peer(self._pid)
            self._target.connections += 1
        return self._target

    def _send(self, message: dict[str, Any]) -> None:
        # A caller that died does not end a step that was begun, so nothing is raised for it here.
        if not self._transport.is_closing():
            self._transport.write((json.dumps(message) + "\n").encode())


async def serve(path: Path, device: SimulatedDevice, stop: asyncio.Event) -> None:
    """Serve on the Unix socket at ``path`` until ``stop``. An old socket file there is replaced."""
    connections: set[Connection] = set()
    # Bound under another name first, so that whoever sees the path can connect.
    fresh = _clear(path)
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: Connection(device, connections), fresh)
    await asyncio.to_thread(fresh.rename, path)
    print(f"simulated devices serve on {path}", flush=True)
    try:
        await stop.wait()
    finally:
        server.close()
        for connection in tuple(connections):
            connection.end()
        _clear(path)


def _clear(path: Path) -> Path:
    fresh = path.with_name(path.name + ".new")
    for one in (path, fresh):
        one.unlink(missing_ok=True)
    return fresh
