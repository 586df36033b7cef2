# SPDX-License-Identifier: Apache-2.0
"""The backend that moves a process's whole state by a driver, in helper processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator, Sequence

from ledger.records import Device, Process, ProcessState
from nodeagent import procfs
from nodeagent.backends.base import BackendError, Findings, Found, Known
from nodeagent.backends.driver import DeviceUse, DriverError, NoContext, Progress, Verdict
from nodeagent.discovery import Machine, owner
from nodeagent.helpers import LOOKER, HelperPool, HelperTimedOut

_LOCK_SHARE = 0.8
"""The part of a lock's time that the driver is given; the rest is for its answer, before its helper is killed."""

_FREE_PAUSE = 0.02


class DrivenBackend:
    """A `Backend` over a `Driver`.

    Attributes:
        unready: why this node cannot do it, as `examine` found; empty when it can. Then every look fails with it.
    """

    parked_means_stopped = True

    def __init__(
        self, name: str, pool: HelperPool, *, baseline_bytes: int, unready: str = "", machine: Machine | None = None
    ) -> None:
        self.name, self.baseline_bytes, self.unready = name, baseline_bytes, unready
        self._pool, self._machine = pool, machine or Machine()
        self._devices: Sequence[Device] = ()

    async def examine(self, *, within: float) -> None:
        """Have the driver tested; `unready` has the result."""
        with _as_backend_error("examine", None):
            self.unready = await self._pool.call("unready", LOOKER, within=within)

    async def devices(self, *, within: float) -> Sequence[Device]:
        if not self._devices:
            with _as_backend_error("devices", None):
                answer = await self._pool.call("devices", LOOKER, within=within)
            self._devices = tuple(Device(uuid, size) for uuid, size in answer)
        return self._devices

    async def use(self, devices: Sequence[str], *, within: float) -> Sequence[DeviceUse]:
        with _as_backend_error("use", None):
            answer = await self._pool.call("use", LOOKER, within=within, devices=list(devices))
        return [DeviceUse(uuid, used, total, tuple(pids)) for uuid, used, total, pids in answer]

    async def find(self, group: str, devices: Sequence[str], known: Known, *, within: float) -> Findings:
        if self.unready:
            raise BackendError("find", None, f"{self.name} is not ready on this node: {self.unready}")
        with _as_backend_error("find", None):
            # All devices of the node, so that a process which uses another group's too is seen.
            everything = [one.uuid for one in await self.devices(within=within)]
            missing = set(devices) - set(everything)
            if missing:
                raise DriverError("use", 0, f"there is no device {', '.join(sorted(missing))} on this node")
            use = await self.use(everything, within=within)
            return await self._sort_out(group, devices, known, use, within)

    async def _sort_out(
        self, group: str, devices: Sequence[str], known: Known, use: Sequence[DeviceUse], within: float
    ) -> Findings:
        ours = tuple(one for one in use if one.uuid in devices)
        there = {pid: process for one in ours for pid in one.pids if (process := procfs.process(pid))}
        for processes in known.values():
            there.update((one.pid, one) for one in processes if procfs.alive(one))
        pids = sorted(there)
        states = await self._pool.call("states", LOOKER, within=within, pids=pids)
        found: list[Found] = []
        strangers: list[Process] = []
        for pid, state in zip(pids, states, strict=True):
            if state is None:
                continue  # it only counts devices: nothing of it has to be moved
            job = owner(there[pid], group, known, self._machine)
            if job is None:
                strangers.append(there[pid])
            else:
                on = tuple(one.uuid for one in use if pid in one.pids)
                found.append(Found(there[pid], job, ProcessState[state], on))
        return Findings(tuple(found), tuple(strangers), ours)

    async def check(self, process: Process, *, within: float) -> Verdict:
        with _as_backend_error("check", process):
            refused, size = await self._pool.call("check", process.pid, within=within)
        return Verdict(refused, size)

    async def lock(self, process: Process, *, within: float) -> None:
        with _as_backend_error("lock", process):
            timeout_ms = max(1, int(within * _LOCK_SHARE * 1000))
            await self._pool.call("lock", process.pid, within=within, timeout_ms=timeout_ms)

    async def save(self, process: Process, progress: Progress, *, within: float) -> None:
        with _as_backend_error("save", process):
            await self._pool.call("checkpoint", process.pid, within=within, progress=progress)

    async def restore(self, process: Process, progress: Progress, *, within: float) -> None:
        with _as_backend_error("restore", process):
            await self._pool.call("restore", process.pid, within=within, progress=progress)

    async def resume(self, process: Process, *, within: float) -> None:
        with _as_backend_error("resume", process):
            await self._pool.call("unlock", process.pid, within=within)

    async def undo(self, process: Process, *, within: float) -> None:
        with _as_backend_error("undo", process):
            await self._pool.call("unlock", process.pid, within=within)

    async def state(self, process: Process, *, within: float) -> ProcessState | None:
        if not procfs.alive(process):
            return None
        with _as_backend_error("state", process):
            (state,) = await self._pool.call("states", LOOKER, within=within, pids=[process.pid])
        return None if state is None else ProcessState[state]

    async def kill(self, process: Process, *, within: float) -> None:
        with _as_backend_error("kill", process):
            try:
                async with asyncio.timeout(within):
                    await _end(process)
                    await self._freed(process.pid, within)
            except TimeoutError:
                raise HelperTimedOut("kill", process.pid, f"it has not ended within {within:.1f} s") from None

    async def _freed(self, pid: int, within: float) -> None:
        """Ask until the devices do not name ``pid``: nothing tells when a driver has taken back a dead one's memory."""
        devices = [one.uuid for one in await self.devices(within=within)]
        while True:
            if not any(pid in one.pids for one in await self.use(devices, within=within)):
                return
            await asyncio.sleep(_FREE_PAUSE)

    async def keep_warm(self, processes: Sequence[Process]) -> None:
        await self._pool.forget_dead()
        await asyncio.gather(*(self._pool.warm(one.pid) for one in processes))

    async def close(self) -> None:
        await self._pool.close()


async def _end(process: Process) -> None:
    """SIGKILL that very process and wait until it is gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    try:
        if not procfs.alive(process):
            return  # another process has its pid by now
        loop.add_reader(handle, gone.set)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        await gone.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


@contextlib.contextmanager
def _as_backend_error(step: str, process: Process | None) -> Iterator[None]:
    try:
        yield
    except DriverError as error:
        if isinstance(error, NoContext):
            raise BackendError(step, process, "it has ended, or has nothing on a device", final=True) from error
        timed_out = isinstance(error, HelperTimedOut)
        raise BackendError(step, process, error.why, timed_out=timed_out, final=error.final) from error
    except PermissionError as error:
        why = f"the agent lacks a privilege ({error}); run it as root, in the host's pid namespace"
        raise BackendError(step, process, why) from error
