# SPDX-License-Identifier: Apache-2.0
"""The backend that moves a process's whole state by a driver, in helper processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ledger.records import Device, Process, ProcessState
from nodeagent import procfs
from nodeagent.backends.base import BackendError, Findings, Found, Known
from nodeagent.backends.driver import DeviceUse, DriverError, NoContext, Progress, Sight, Verdict
from nodeagent.backends.looks import Looks, Wish
from nodeagent.discovery import Machine, owner
from nodeagent.helpers import LOOKER, HelperDied, HelperPool, HelperTimedOut
from nodeagent.living import Living

_log = logging.getLogger(__name__)

_STATES = {one.name: one for one in ProcessState}

_LOCK_SHARE = 0.8
"""The part of a lock's time that the driver is given; the rest is for its answer, before its helper is killed."""

_FREE_PAUSE = 0.02

_ORPHAN_PAUSE = 0.05
"""Seconds between two looks at a call whose helper has died: nothing tells when the driver is done with it."""


class DrivenBackend:
    """A `Backend` over a `Driver`.

    Attributes:
        unready: why this node cannot do it, as `examine` found; empty when it can. Then every look fails with it.
        living: says which processes are still there.
    """

    parked_means_stopped = True

    def __init__(
        self, name: str, pool: HelperPool, *, baseline_bytes: int, unready: str = "", machine: Machine | None = None
    ) -> None:
        self.name, self.baseline_bytes, self.unready = name, baseline_bytes, unready
        self._pool, self._machine = pool, machine or Machine()
        self._devices: Sequence[Device] = ()
        self._looks = Looks(self._see)
        self.living = Living()

    async def examine(self, *, within: float) -> None:
        """Have the driver tested; `unready` has the result."""
        with _AsBackendError("examine", None):
            self.unready = await self._ask("unready", LOOKER, within=within)

    async def devices(self, *, within: float) -> Sequence[Device]:
        if not self._devices:
            with _AsBackendError("devices", None):
                answer = await self._ask("devices", LOOKER, within=within)
            self._devices = tuple(Device(uuid, size) for uuid, size in answer)
        return self._devices

    async def use(self, devices: Sequence[str], *, within: float) -> Sequence[DeviceUse]:
        with _AsBackendError("use", None):
            seen = await self._look(devices, (), (), within)
        return [seen.use[one] for one in devices]

    async def find(self, group: str, devices: Sequence[str], known: Known, *, within: float) -> Findings:
        if self.unready:
            raise BackendError("find", None, f"{self.name} is not ready on this node: {self.unready}")
        with _AsBackendError("find", None):
            # All devices of the node, so that a process which uses another group's too is seen.
            everything = [one.uuid for one in await self.devices(within=within)]
            missing = set(devices) - set(everything)
            if missing:
                raise DriverError("use", 0, f"there is no device {', '.join(sorted(missing))} on this node")
            known_here = {one.pid: one for ones in known.values() for one in self.living.among(ones)}
            seen = await self._look(everything, devices, known_here, within)
            return self._sort_out(group, devices, known, known_here, seen)

    async def _look(self, devices: Collection[str], of: Collection[str], pids: Collection[int], within: float) -> Sight:
        try:
            return await self._looks.look(devices, of, pids, within=within)
        except TimeoutError:
            raise HelperTimedOut("look", 0, f"it did not end within {within:.1f} s") from None

    async def _see(self, wish: Wish) -> Sight:
        """One call for all that is wished for."""
        uses, states = await self._ask(
            "look", LOOKER, within=wish.within, devices=sorted(wish.devices), of=sorted(wish.of), pids=sorted(wish.pids)
        )
        return Sight(
            {uuid: DeviceUse(uuid, used, total, tuple(there)) for uuid, used, total, there in uses},
            {pid: state and _STATES[state] for pid, state in states},
        )

    def _sort_out(
        self, group: str, devices: Sequence[str], known: Known, known_here: Mapping[int, Process], seen: Sight
    ) -> Findings:
        ours = tuple(seen.use[one] for one in devices)
        there = {pid for one in ours for pid in one.pids}
        found: list[Found] = []
        strangers: list[Process] = []
        for pid in sorted(there.union(known_here)):
            process = known_here.get(pid) or procfs.process(pid)
            if process is None:
                continue
            state = seen.states[pid]
            if state is None:
                continue  # it only counts devices: nothing of it has to be moved
            job = owner(process, group, known, self._machine)
            if job is None:
                strangers.append(process)
            else:
                on = tuple(one.uuid for one in seen.use.values() if pid in one.pids)
                found.append(Found(process, job, state, on))
        return Findings(tuple(found), tuple(strangers), ours)

    async def check(self, process: Process, *, within: float) -> Verdict:
        with _AsBackendError("check", process):
            refused, size = await self._ask("check", process.pid, within=within)
        return Verdict(refused, size)

    async def lock(self, process: Process, *, within: float) -> None:
        timeout_ms = max(1, int(within * _LOCK_SHARE * 1000))
        await self._move("lock", "lock", process, ProcessState.LOCKED, within=within, timeout_ms=timeout_ms)

    async def save(self, process: Process, progress: Progress, *, within: float) -> None:
        await self._move("save", "checkpoint", process, ProcessState.PARKED, within=within, progress=progress)

    async def restore(self, process: Process, progress: Progress, *, within: float) -> None:
        await self._move("restore", "restore", process, ProcessState.LOCKED, within=within, progress=progress)

    async def resume(self, process: Process, *, within: float) -> None:
        await self._move("resume", "unlock", process, ProcessState.RUNNING, within=within)

    async def undo(self, process: Process, *, within: float) -> None:
        await self._move("undo", "unlock", process, ProcessState.RUNNING, within=within)

    async def state(self, process: Process, *, within: float) -> ProcessState | None:
        if not procfs.alive(process):
            return None
        with _AsBackendError("state", process):
            return (await self._look((), (), (process.pid,), within)).states[process.pid]

    async def kill(self, process: Process, *, within: float) -> None:
        with _AsBackendError("kill", process):
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
        await self._looks.close()
        await self._pool.close()
        self.living.close()

    async def _ask(self, call: str, pid: int, *, within: float, **arguments: Any) -> Any:
        """A call that changes nothing: one whose helper dies is made once more, by another."""
        limit = asyncio.get_running_loop().time() + within
        try:
            return await self._pool.call(call, pid, within=within, **arguments)
        except HelperDied as error:
            _log.warning("%s: asking once more.", error)
            return await self._pool.call(call, pid, within=_left(limit), **arguments)

    async def _move(
        self, step: str, call: str, process: Process, after: ProcessState, *, within: float, **more: Any
    ) -> None:
        """A call that leaves the process in the state ``after``.

        A helper's death says nothing about the process, and no job is to be pinned, killed or kept out for it: another
        helper does what is not done. Until then the driver may still be at the dead one's call, and refuse a second.
        """
        limit = asyncio.get_running_loop().time() + within
        died = False
        with _AsBackendError(step, process):
            while True:
                try:
                    await self._pool.call(call, process.pid, within=_left(limit), **more)
                    return
                except HelperTimedOut:
                    raise
                except DriverError as error:
                    if error.final or died is isinstance(error, HelperDied):
                        raise  # the driver's own word; or helpers that die of this very call
                    if not died:
                        _log.warning("%s: another does it.", error)
                    died = True
                    state = await self.state(process, within=_left(limit))
                    if state is after:
                        return
                    if state in (None, ProcessState.FAILED):
                        raise
                await asyncio.sleep(_ORPHAN_PAUSE)


def _left(limit: float) -> float:
    """Seconds until ``limit``, of the loop's clock."""
    return max(limit - asyncio.get_running_loop().time(), 0.0)


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


class _AsBackendError:
    """Around a step: what a driver or the kernel refuses inside is raised as a BackendError."""

    __slots__ = ("_process", "_step")

    def __init__(self, step: str, process: Process | None) -> None:
        self._step, self._process = step, process

    def __enter__(self) -> None:
        """Nothing is to be done before."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        step, process = self._step, self._process
        match error:
            case NoContext():
                raise BackendError(step, process, "it has ended, or has nothing on a device", final=True) from error
            case DriverError():
                timed_out = isinstance(error, HelperTimedOut)
                raise BackendError(step, process, error.why, timed_out=timed_out, final=error.final) from error
            case PermissionError():
                why = f"the agent lacks a privilege ({error}); run it as root, in the host's pid namespace"
                raise BackendError(step, process, why) from error
            case _:
                pass
