# SPDX-License-Identifier: Apache-2.0
"""The simulated device, a process of its own: ``python -m nodeagent.backends.sim.device --socket S --log L``.

Workloads and drivers connect to one Unix socket and send a JSON object a line. Who a workload is, is told by
the socket's peer credentials, never by what it says. What ran when is written to the log by the device alone,
so that the log is evidence about everything else (`nodeagent.backends.sim.log` reads it).

State machine and steps are those of `nodeagent.backends.driver`. Like the real driver's, a step that was
begun goes on when its caller dies. Copies take ``latency + bytes / bandwidth``; the devices of one process
copy side by side.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.records import ProcessState
from nodeagent import procfs
from nodeagent.backends.sim.faults import FaultKind, Faults
from nodeagent.backends.sim.memory import checksum, mutate
from nodeagent.backends.sim.server import serve
from nodeagent.backends.sim.target import Buffer, DeviceError, Target

_PROGRESS_STEPS = 10
_PROGRESS_EVERY = 0.01
_INSTANT = 1e-6
"""Seconds below which a copy takes no time, and there is no progress to tell of."""

Send = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Shape:
    """What is simulated. ``bandwidth`` in bytes a second for each device, ``latency`` in seconds a copy."""

    devices: tuple[str, ...]
    capacity: int
    bandwidth: float
    latency: float


class Log:
    """The evidence: one JSON object a line, each written by one write(2) to a file opened for appending."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, event: str, target: Target, device: str, **more: Any) -> None:
        line = {
            "event": event,
            "mono": time.clock_gettime_ns(time.CLOCK_MONOTONIC),
            "boot": time.clock_gettime_ns(time.CLOCK_BOOTTIME),
            "job": target.job,
            "pid": target.pid,
            "start": target.start_time,
            "device": device,
            **more,
        }
        os.write(self._fd, (json.dumps(line, separators=(",", ":")) + "\n").encode())

    def write_all(self, event: str, target: Target, **more: Any) -> None:
        for device in target.buffers:
            self.write(event, target, device, **more)

    def close(self) -> None:
        os.close(self._fd)


class SimulatedDevice:
    """The devices of one simulated node and all that is on them."""

    def __init__(self, shape: Shape, log: Log) -> None:
        self.shape, self.log = shape, log
        self.faults = Faults()
        self._targets: dict[int, Target] = {}

    # ----------------------------------------------------------------------------------------- workload calls

    def target_of_peer(self, pid: int) -> Target:
        """The process at the other end of a socket; known from now on until it dies or hangs up."""
        target = self._targets.get(pid)
        if target is None:
            process = procfs.process(pid)
            environ = procfs.environ(pid)
            if process is None or environ is None:
                raise DeviceError(f"process {pid} has ended")
            pidfd = os.pidfd_open(pid)
            target = Target(pid, process.start_time, environ.get("TIMESLICE_JOB_ID", ""), pidfd)
            self._targets[pid] = target
            asyncio.get_running_loop().add_reader(pidfd, self.forget, target)
        return target

    def forget(self, target: Target) -> None:
        """The process died, or closed its last connection: its memory is free."""
        if target.gone:
            return
        target.gone = True
        asyncio.get_running_loop().remove_reader(target.pidfd)
        os.close(target.pidfd)
        if target.state is ProcessState.RUNNING:
            self.log.write_all("stop", target, why="dead")
        self.log.write_all("detach", target)
        target.buffers.clear()
        target.host.clear()
        del self._targets[target.pid]
        self._later = asyncio.ensure_future(target.tell())

    async def attach(self, target: Target, device: str, data: bytes, nominal: int) -> None:
        self._known(device)
        if not data:
            raise DeviceError("nothing to attach")
        await target.enter()
        try:
            if device in target.buffers:
                raise DeviceError(f"the process has memory on {device} already")
            size = nominal or len(data)
            self._room(device, size)
            target.buffers[device] = Buffer(size, bytearray(data))
            self.log.write("attach", target, device, bytes=size, checksum=checksum(data))
            self.log.write("run", target, device)
        finally:
            await target.leave()

    async def touch(self, target: Target, device: str, ms: float) -> dict[str, Any]:
        """A kernel of ``ms`` milliseconds. It waits while the process is locked or parked."""
        await target.enter()
        try:
            buffer = target.buffer(device)
            self.log.write("touch-begin", target, device)
            await asyncio.sleep(ms / 1000)  # the kernel's own time, not a wait for something
            if buffer.data is None or target.gone:
                raise DeviceError("the process has ended")
            mutate(buffer.data, buffer.kernels)
            buffer.kernels += 1
            self.log.write("touch-end", target, device)
            return {"kernels": buffer.kernels, "checksum": checksum(buffer.data)}
        finally:
            await target.leave()

    async def read_checksum(self, target: Target, device: str) -> dict[str, Any]:
        await target.enter()
        try:
            buffer = target.buffer(device)
            assert buffer.data is not None
            return {"kernels": buffer.kernels, "checksum": checksum(buffer.data)}
        finally:
            await target.leave()

    async def free(self, target: Target, device: str) -> None:
        await target.enter()
        try:
            target.buffer(device)
            self.log.write("stop", target, device, why="freed")
            self.log.write("detach", target, device)
            del target.buffers[device]
        finally:
            await target.leave()

    # ------------------------------------------------------------------------------------------ control calls

    def look(self, devices: list[str], of: list[str], pids: list[int]) -> dict[str, Any]:
        """The account of ``devices``, and the states of ``pids`` and of all processes on those of them in ``of``."""
        use = self.use(devices)
        there = {pid for one in use if one["uuid"] in of for pid in one["pids"]}
        return {"use": use, "states": [(pid, self.state(pid)) for pid in sorted(there.union(pids))]}

    def use(self, devices: list[str]) -> list[dict[str, Any]]:
        return [
            {
                "uuid": device,
                "used": self._used(device),
                "total": self.shape.capacity,
                "pids": [
                    *(one.pid for one in self._targets.values() if one.on_device and device in one.buffers),
                    *self.faults.pids(FaultKind.LISTED),
                ],
            }
            for device in map(self._known, devices)
        ]

    def target(self, pid: int) -> Target:
        target = self._targets.get(pid)
        if target is None or not target.buffers:
            raise DeviceError("it has no context on a device", no_context=True)
        return target

    def state(self, pid: int) -> str | None:
        """As a driver says it: a process is parked until all of it is back. None: it has no context."""
        target = self._targets.get(pid)
        if target is None or not target.buffers:
            return None
        return ProcessState.PARKED.name if target.busy == "restore" else target.state.name

    def check(self, target: Target) -> dict[str, Any]:
        size = sum(buffer.nominal for buffer in target.buffers.values())
        if target.state is ProcessState.FAILED:
            return {"refused": "the process is FAILED", "bytes": size}
        if self.faults.has(FaultKind.NCCL, target.job, target.pid):
            return {"refused": "it holds NCCL memory that could never be restored", "bytes": size}
        return {"refused": "", "bytes": size}

    async def lock(self, target: Target, timeout_ms: int) -> None:
        if self.faults.strike(FaultKind.LOCK_REFUSED, target.job, target.pid):
            raise DeviceError("the lock was refused")
        if self.faults.strike(FaultKind.LOCK_HANGS, target.job, target.pid):
            await self.faults.hang()
        target.require(ProcessState.RUNNING, "lock")
        target.busy = "lock"
        try:
            await target.drain(timeout_ms / 1000)
            target.state = ProcessState.LOCKED
            self.log.write_all("stop", target, why="locked")
        finally:
            target.busy = ""

    async def checkpoint(self, target: Target, send: Send) -> None:
        target.require(ProcessState.LOCKED, "checkpoint")
        target.busy = "checkpoint"
        try:
            self._log_sums("checkpoint-begin", target)
            await self._copy(target, send)
            if self.faults.strike(FaultKind.CHECKPOINT_BREAKS, target.job, target.pid):
                target.state = ProcessState.FAILED
                raise DeviceError("the checkpoint broke the process", final=True)
            if self.faults.strike(FaultKind.CHECKPOINT_FAILS, target.job, target.pid):
                raise DeviceError("the checkpoint failed")
            target.save()
            target.state = ProcessState.PARKED
            self._log_sums("checkpoint-end", target)
            if self.faults.strike(FaultKind.SAVE_LOSES_DATA, target.job, target.pid):
                target.host = {device: bytes(len(data)) for device, data in target.host.items()}
        finally:
            target.busy = ""

    async def restore(self, target: Target, send: Send) -> None:
        target.require(ProcessState.PARKED, "restore")
        for device, buffer in target.buffers.items():
            self._room(device, buffer.nominal)
        # Its memory is taken from here on: two restores side by side must not both find the same room.
        target.state, target.busy = ProcessState.LOCKED, "restore"
        try:
            self._log_sums("restore-begin", target)
            await self._copy(target, send)
            if self.faults.strike(FaultKind.RESTORE_BREAKS, target.job, target.pid):
                target.state = ProcessState.FAILED
                raise DeviceError("the restore broke the process", final=True)
            if self.faults.strike(FaultKind.RESTORE_FAILS, target.job, target.pid):
                target.state = ProcessState.PARKED
                raise DeviceError("the restore failed")
            if self.faults.strike(FaultKind.RESTORE_NEVER, target.job, target.pid):
                target.state = ProcessState.PARKED
                raise DeviceError("what was saved cannot be restored", final=True)
            target.load()
            self._log_sums("restore-end", target)
        finally:
            target.busy = ""

    async def unlock(self, target: Target) -> None:
        target.require(ProcessState.LOCKED, "unlock")
        if self.faults.strike(FaultKind.UNLOCK_FAILS, target.job, target.pid):
            raise DeviceError("the unlock failed")
        target.state, target.gate = ProcessState.RUNNING, True
        self.log.write_all("run", target)
        await target.tell()

    # ------------------------------------------------------------------------------------------------- inside

    def _known(self, device: str) -> str:
        if device not in self.shape.devices:
            raise DeviceError(f"there is no device {device!r}")
        return device

    def _used(self, device: str) -> int:
        return sum(
            one.buffers[device].nominal
            for one in self._targets.values()
            if device in one.buffers
            and (one.on_device or self.faults.has(FaultKind.MEMORY_NOT_FREED, one.job, one.pid))
        )

    def _room(self, device: str, size: int) -> None:
        if self._used(device) + size > self.shape.capacity:
            raise DeviceError(f"out of memory on {device}: {size} bytes asked for")

    async def _copy(self, target: Target, send: Send) -> None:
        """Take the time of the copy. Raises if the process dies in it."""
        total = sum(buffer.nominal for buffer in target.buffers.values())
        longest = max(buffer.nominal for buffer in target.buffers.values())
        slow = self.faults.strike(FaultKind.SLOW, target.job, target.pid)
        seconds = self.shape.latency + longest / self.shape.bandwidth + (slow.ms / 1000 if slow else 0)
        if seconds < _INSTANT:
            return
        steps = max(1, min(_PROGRESS_STEPS, int(seconds / _PROGRESS_EVERY)))
        begun = asyncio.get_running_loop().time()
        for step in range(1, steps + 1):
            with contextlib.suppress(TimeoutError):
                # Each step's end is counted from the beginning, so that their delays do not add up.
                async with asyncio.timeout_at(begun + seconds * step / steps), target.changed:
                    await target.changed.wait_for(lambda: target.gone)
            if target.gone:
                raise DeviceError("the process has ended", final=True)
            send({"progress": [total * step // steps, total]})

    def _log_sums(self, event: str, target: Target) -> None:
        for device, value in target.sums().items():
            self.log.write(event, target, device, checksum=value, bytes=target.buffers[device].nominal)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = argparse.ArgumentParser(prog="python -m nodeagent.backends.sim.device", description="A simulated device.")
    out.add_argument("--socket", type=Path, required=True, help="the Unix socket to serve on")
    out.add_argument("--log", type=Path, required=True, help="the file that the evidence is appended to")
    out.add_argument("--devices", type=int, default=1, help="how many devices (default: 1)")
    out.add_argument("--prefix", default="SIM-", help="what the devices' UUIDs begin with (default: SIM-)")
    out.add_argument("--capacity", type=int, default=80 << 30, help="bytes of each device (default: 80 GiB)")
    out.add_argument("--bandwidth", type=float, default=50e9, help="bytes a second of a copy (default: 50e9)")
    out.add_argument("--latency", type=float, default=0.01, help="seconds that each copy takes besides")
    return out


def _loop() -> asyncio.AbstractEventLoop:
    """One whose timers are exact: epoll(7) waits for whole milliseconds, and each kernel would be longer by one."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


async def _main(arguments: argparse.Namespace) -> None:
    uuids = tuple(f"{arguments.prefix}{index}" for index in range(arguments.devices))
    log = Log(arguments.log)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        shape = Shape(uuids, arguments.capacity, arguments.bandwidth, arguments.latency)
        await serve(arguments.socket, SimulatedDevice(shape, log), stop)
    finally:
        log.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=_loop) as runner:
        runner.run(_main(parser().parse_args()))
