# SPDX-License-Identifier: Apache-2.0
"""One process as the simulated device has it: its state, its memory on the devices, its saved copy."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from ledger.records import ProcessState
from nodeagent.backends.sim.memory import checksum


class DeviceError(Exception):
    """A call that the simulated device refuses. ``final``: the process is FAILED for good."""

    def __init__(self, why: str, *, final: bool = False, no_context: bool = False) -> None:
        super().__init__(why)
        self.why, self.final, self.no_context = why, final, no_context


@dataclass(slots=True)
class Buffer:
    """Memory of one process on one device.

    Attributes:
        nominal: the bytes that it counts for, in capacity and in the time of a copy.
        data: the real bytes; None while they are only in the host copy.
        kernels: how many ran on it.
    """

    nominal: int
    data: bytearray | None
    kernels: int = 0


@dataclass(slots=True)
class Target:
    """A process with a context on the device."""

    pid: int
    start_time: int
    job: str
    pidfd: int
    state: ProcessState = ProcessState.RUNNING
    buffers: dict[str, Buffer] = field(default_factory=dict)
    host: dict[str, bytes] = field(default_factory=dict)
    connections: int = 0
    busy: str = ""
    gone: bool = False
    in_flight: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    gate: bool = True  # new work is let in

    async def tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def enter(self) -> None:
        """Wait until the process may use the device, as a blocked API call does; then count as work in
        flight."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.gone or self.gate)
            if self.gone:
                raise DeviceError("the process has ended")
            self.in_flight += 1

    async def leave(self) -> None:
        async with self.changed:
            self.in_flight -= 1
            self.changed.notify_all()

    async def drain(self, timeout: float) -> None:
        """Let no new work in and wait for what is in flight. On time-out the gate opens again."""
        self.gate = False
        try:
            async with asyncio.timeout(timeout), self.changed:
                await self.changed.wait_for(lambda: self.gone or not self.in_flight)
        except TimeoutError:
            self.gate = True
            await self.tell()
            raise DeviceError("the lock timed out: work is still in flight") from None
        if self.gone:
            raise DeviceError("the process has ended")

    def require(self, state: ProcessState, call: str) -> None:
        if self.busy:
            raise DeviceError(f"a {self.busy} is in progress")
        if self.state is not state:
            raise DeviceError(f"{call} needs {state.name}; the process is {self.state.name}")

    def buffer(self, device: str) -> Buffer:
        buffer = self.buffers.get(device)
        if buffer is None:
            raise DeviceError(f"the process has nothing on {device}")
        return buffer

    def save(self) -> None:
        """Move the bytes of every buffer to the host copy."""
        for device, buffer in self.buffers.items():
            assert buffer.data is not None
            self.host[device] = bytes(buffer.data)
            buffer.data = None

    def load(self) -> None:
        """Move the host copy back."""
        for device, buffer in self.buffers.items():
            buffer.data = bytearray(self.host.pop(device))

    def sums(self) -> dict[str, str]:
        """The checksum of each buffer, where its bytes are now."""
        return {
            device: checksum(self.host[device] if buffer.data is None else buffer.data)
            for device, buffer in self.buffers.items()
        }

    @property
    def on_device(self) -> bool:
        return bool(self.buffers) and self.state is not ProcessState.PARKED
