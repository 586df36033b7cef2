# SPDX-License-Identifier: Apache-2.0
"""Checkpoint and restore of one job by hand, without a coordinator.

Nothing is touched that a coordinator is in charge of: no device that a group has, no process that it knows.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from ledger.keys import check_name
from ledger.records import Device, Process, Processes, ProcessRecord, ProcessState
from nodeagent import procfs
from nodeagent.backends.base import Backend, BackendError
from nodeagent.backends.driver import Progress
from nodeagent.discovery import JOB
from nodeagent.errors import AgentError
from nodeagent.journal import Journal, Parked

DEFAULT_ALLOWED = 600.0
_STEP_WITHIN = 10.0
_KEPT = 256


class GroupInCharge(AgentError):
    """A coordinator is in charge of what was to be moved."""

    reason = "GROUP_IN_CHARGE"
    next_step = "Let the coordinator move it, or take the devices out of the group first."


class NoSuchJob(AgentError):
    """No process of the job is there to be moved."""

    reason = "NO_SUCH_JOB"
    next_step = "Start it with TIMESLICE_JOB_ID in its environment, or name its pids."


class NoSuchOperation(AgentError):
    reason = "NO_SUCH_OPERATION"
    next_step = "It may have been begun before the agent's last start."


class State(Enum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True)
class Operation:
    """One checkpoint or restore, while it goes on and after. ``began``: `time.monotonic` seconds."""

    id: str
    job: str
    began: float
    state: State = State.RUNNING
    elapsed: float = 0.0
    error: str = ""
    moved: dict[int, tuple[int, int]] = field(default_factory=dict)
    processes: tuple[ProcessRecord, ...] = ()
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self) -> None:
        """Wake who watches; each later wait is for the next change."""
        event, self.changed = self.changed, asyncio.Event()
        event.set()


_Steps = Callable[[Operation], Awaitable[None]]


class Surroundings(Protocol):
    """What is needed of the agent."""

    @property
    def devices(self) -> Sequence[Device]: ...
    @property
    def backend(self) -> Backend: ...
    @property
    def journal(self) -> Journal: ...
    @property
    def informed(self) -> bool: ...
    def owners(self) -> Mapping[str, str]: ...
    def recorded(self) -> Mapping[str, Processes]: ...


class Standalone:
    """The operations of one agent. A second one for a job that has one in hand is that one."""

    def __init__(self, agent: Surroundings) -> None:
        self._agent = agent
        self._operations: dict[str, Operation] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def checkpoint(self, job: str, pids: Sequence[int], allowed: float) -> Operation:
        """Take a job off its devices. Raises BadName, GroupInCharge, NoSuchJob, BackendError."""
        check_name("job", job)
        if going := self._going(job):
            return going
        use = await self._agent.backend.use([one.uuid for one in self._agent.devices], within=_STEP_WITHIN)
        there = sorted({pid for one in use for pid in one.pids})
        wanted = pids or [pid for pid in there if (procfs.environ(pid) or {}).get(JOB) == job]
        processes = tuple(one for pid in wanted if pid in there and (one := procfs.process(pid)))
        if not processes or len(processes) < len(wanted):
            raise NoSuchJob(f"Not every process of {job} is on the devices: {list(wanted)}.")
        devices = tuple(one.uuid for one in use if any(pid in one.pids for pid in wanted))
        self._forbid(processes, devices)
        return self._begin(job, self._save(job, processes, devices, allowed or DEFAULT_ALLOWED))

    async def restore(self, job: str, allowed: float) -> Operation:
        """Bring back a job that `checkpoint` took off. Raises BadName, GroupInCharge, NoSuchJob."""
        check_name("job", job)
        if going := self._going(job):
            return going
        parked = self._agent.journal.state.parked.get(job, Parked())
        if not any(map(procfs.alive, parked.processes)):
            raise NoSuchJob(f"Nothing of {job} was checkpointed here and is still there.")
        self._forbid(parked.processes, parked.devices)
        return self._begin(job, self._bring_back(job, parked.processes, allowed or DEFAULT_ALLOWED))

    def get(self, number: str) -> Operation:
        """Raises NoSuchOperation."""
        try:
            return self._operations[number]
        except KeyError:
            raise NoSuchOperation(f"The node knows no operation {number!r}.") from None

    async def watch(self, number: str) -> AsyncIterator[Operation]:
        """The operation each time that it changes, and at its end. Raises NoSuchOperation."""
        operation = self.get(number)
        while True:
            # Both before the operation is shown: what changes meanwhile is shown next.
            changed, over = operation.changed, operation.state is not State.RUNNING
            yield operation
            if over:
                return
            await changed.wait()

    async def close(self) -> None:
        """Give up waiting for what is in hand: the helpers end their driver calls."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------------------------ inside

    def _going(self, job: str) -> Operation | None:
        return next((one for one in self._operations.values() if one.job == job and one.state is State.RUNNING), None)

    def _forbid(self, processes: Sequence[Process], devices: Sequence[str]) -> None:
        if not self._agent.informed and self._agent.journal.state.groups:
            raise GroupInCharge("There were groups here, and etcd has not yet said what they have.")
        owners = self._agent.owners()
        for device in devices:
            if device in owners:
                raise GroupInCharge(f"Device {device} belongs to group {owners[device]}.")
        for group, records in self._agent.recorded().items():
            known = {one.process for job in records.jobs for one in job.processes}
            for process in processes:
                if process in known:
                    raise GroupInCharge(f"Process {process.pid} belongs to group {group}.")

    def _begin(self, job: str, steps: _Steps) -> Operation:
        operation = Operation(uuid.uuid4().hex, job, time.monotonic())
        finished = [number for number, one in self._operations.items() if one.state is not State.RUNNING]
        for number in finished[: max(0, len(finished) - _KEPT)]:
            del self._operations[number]
        self._operations[operation.id] = operation
        task = asyncio.create_task(self._run(operation, steps))
        self._tasks[operation.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(operation.id, None))
        return operation

    async def _run(self, operation: Operation, steps: _Steps) -> None:
        try:
            await steps(operation)
            operation.state = State.DONE
        except (BackendError, AgentError) as error:
            operation.state, operation.error = State.FAILED, str(error)
        finally:
            operation.elapsed = time.monotonic() - operation.began
            operation.tell()

    def _save(self, job: str, processes: Sequence[Process], devices: tuple[str, ...], allowed: float) -> _Steps:
        backend, journal = self._agent.backend, self._agent.journal

        async def steps(operation: Operation) -> None:
            verdicts = {one: await backend.check(one, within=_STEP_WITHIN) for one in processes}
            for one, verdict in verdicts.items():
                if verdict.refused:
                    raise BackendError("check", one, verdict.refused)
            journal.set_parked(job, Parked(tuple(processes), devices))
            try:
                await _each(processes, lambda one: backend.lock(one, within=min(allowed, _STEP_WITHIN)))
                await _each(processes, lambda one: backend.save(one, _progress(operation, one), within=allowed))
            except BackendError:
                # As before, as far as that goes; what does not come back can be restored by hand.
                await self._back(operation, processes, allowed)
                journal.set_parked(job, Parked())
                raise
            operation.processes = tuple(
                ProcessRecord(one, ProcessState.PARKED, verdict.bytes) for one, verdict in verdicts.items()
            )

        return steps

    def _bring_back(self, job: str, processes: Sequence[Process], allowed: float) -> _Steps:
        async def steps(operation: Operation) -> None:
            await self._back(operation, processes, allowed)
            self._agent.journal.set_parked(job, Parked())
            operation.processes = tuple(ProcessRecord(one, ProcessState.RUNNING) for one in processes)

        return steps

    async def _back(self, operation: Operation, processes: Sequence[Process], allowed: float) -> None:
        """Restore what is parked, then unlock what is locked."""
        backend = self._agent.backend

        async def restore(one: Process) -> None:
            if await backend.state(one, within=_STEP_WITHIN) is ProcessState.PARKED:
                await backend.restore(one, _progress(operation, one), within=allowed)

        async def resume(one: Process) -> None:
            if await backend.state(one, within=_STEP_WITHIN) is ProcessState.LOCKED:
                await backend.resume(one, within=_STEP_WITHIN)

        await _each(processes, restore)
        await _each(processes, resume)


async def _each(processes: Sequence[Process], step: Callable[[Process], Awaitable[None]]) -> None:
    """Take a step for each, side by side, and wait for all; then raise the first error."""
    results = await asyncio.gather(*map(step, processes), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _progress(operation: Operation, process: Process) -> Progress:
    def told(done: int, total: int) -> None:
        operation.moved[process.pid] = (done, total)
        operation.tell()

    return told
