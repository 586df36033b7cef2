# SPDX-License-Identifier: Apache-2.0
"""The interface of a backend: how the state of a job is taken off the devices of one node and brought back.

The agent speaks to backends only through this interface; what differs between cuda-checkpoint, an in-process
pool, a serving engine or a simulated device stays behind it. Nothing here decides: the order of the steps is
the agent's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ledger.records import Device, Process, ProcessState
from nodeagent.backends.driver import DeviceUse, Progress, Verdict


@dataclass(frozen=True, slots=True)
class Found:
    """A process found on the group's devices, or known from before, and the job that it belongs to."""

    process: Process
    job: str
    state: ProcessState
    bytes: int


@dataclass(frozen=True, slots=True)
class Findings:
    """What is on a group's devices of this node.

    Attributes:
        found: processes of the group's jobs, whatever their state.
        strangers: processes on the devices that belong to no job of the group.
        use: the devices' own account.
    """

    found: tuple[Found, ...]
    strangers: tuple[Process, ...]
    use: tuple[DeviceUse, ...]


class Backend(Protocol):
    """One way of moving state. Every call takes the seconds that it may last and raises `BackendError` after
    them."""

    name: str
    parked_means_stopped: bool

    async def devices(self) -> Sequence[Device]:
        """The devices that this backend sees on the node."""

    async def find(
        self, group: str, devices: Sequence[str], known: Mapping[str, Sequence[Process]], *, within: float
    ) -> Findings:
        """Look. ``known`` holds, for each job, the processes that were registered or recorded before."""

    async def prepare(self, process: Process, *, within: float) -> Verdict:
        """Check that the process can be saved and restored and, if so, lock it: reversible by `undo`."""

    async def save(self, process: Process, progress: Progress, *, within: float) -> None:
        """Move a prepared process's state off the device."""

    async def restore(self, process: Process, progress: Progress, *, within: float) -> None:
        """Move a saved process's state back; it does not run yet."""

    async def resume(self, process: Process, *, within: float) -> None:
        """Let a restored process run."""

    async def undo(self, process: Process, *, within: float) -> None:
        """Take back `prepare`: the process runs as before."""

    async def state(self, process: Process, *, within: float) -> ProcessState:
        """The process's state as the driver has it."""

    async def kill(self, process: Process, *, within: float) -> None:
        """End the process, and wait until its device memory is free."""

    async def close(self) -> None:
        """End the helpers."""


class BackendError(Exception):
    """A step that failed.

    Attributes:
        step: prepare, save, restore, resume, undo, find, state or kill.
        process: the process, if one.
        timed_out: the step did not end within its time; its helper was ended.
        final: the process can neither go on nor be brought back.
    """

    def __init__(
        self, step: str, process: Process | None, why: str, *, timed_out: bool = False, final: bool = False
    ) -> None:
        whom = f" of process {process.pid}" if process else ""
        super().__init__(f"{step}{whom}: {why}")
        self.step, self.process, self.why, self.timed_out, self.final = step, process, why, timed_out, final
