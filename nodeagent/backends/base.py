# SPDX-License-Identifier: Apache-2.0
"""The interface of a backend: how the state of a job is taken off the devices of one node and brought back.

The agent speaks to backends only through this interface; what differs between cuda-checkpoint, an in-process
pool, a serving engine or a simulated device stays behind it. Nothing here decides: the order of the steps is
the agent's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from ledger.records import Device, Process, ProcessState
from nodeagent.backends.driver import DeviceUse, Progress, Verdict

Known = Mapping[str, Sequence[Process]]
"""For each job, the processes that were registered or recorded before."""


class Found(Struct, frozen=True):
    """A process found on the group's devices, or known from before, and the job that it belongs to.

    Attributes:
        devices: those of the node that it has something on now; of a parked process none.
    """

    process: Process
    job: str
    state: ProcessState
    devices: tuple[str, ...] = ()


class Findings(Struct, frozen=True):
    """What is on a group's devices of this node.

    Attributes:
        found: processes of the group's jobs, whatever their state.
        strangers: processes on the devices that belong to no job of the group.
        use: the devices' own account.
    """

    found: tuple[Found, ...] = ()
    strangers: tuple[Process, ...] = ()
    use: tuple[DeviceUse, ...] = ()


class Backend(Protocol):
    """One way of moving state.

    Every call takes the seconds that it may last, and raises `BackendError` after them or when it fails.

    Attributes:
        parked_means_stopped: a saved process cannot run on the device, whatever it tries.
        baseline_bytes: what a device without any process may have in use.
    """

    name: str
    parked_means_stopped: bool
    baseline_bytes: int

    async def devices(self, *, within: float) -> Sequence[Device]:
        """The devices that this backend sees on the node; they stay the same while it is open."""

    async def use(self, devices: Sequence[str], *, within: float) -> Sequence[DeviceUse]:
        """The devices' own account of what is on them."""

    async def find(self, group: str, devices: Sequence[str], known: Known, *, within: float) -> Findings:
        """Look. Known processes that have ended are left out."""

    async def check(self, process: Process, *, within: float) -> Verdict:
        """Whether the process could be saved and restored. Changes nothing."""

    async def lock(self, process: Process, *, within: float) -> None:
        """Keep the process from the devices: reversible by `undo`."""

    async def save(self, process: Process, progress: Progress, *, within: float) -> None:
        """Move a locked process's state off the devices."""

    async def restore(self, process: Process, progress: Progress, *, within: float) -> None:
        """Move a saved process's state back; it does not run yet."""

    async def resume(self, process: Process, *, within: float) -> None:
        """Let a restored process run."""

    async def undo(self, process: Process, *, within: float) -> None:
        """Take back `lock`: the process runs as before."""

    async def state(self, process: Process, *, within: float) -> ProcessState | None:
        """The process's state as the driver has it; None for one that has ended or has nothing to move."""

    async def kill(self, process: Process, *, within: float) -> None:
        """End the process, and wait until its device memory is free."""

    async def keep_warm(self, processes: Sequence[Process]) -> None:
        """Be ready to act on these without delay; give up what was kept for processes that have ended."""

    async def close(self) -> None:
        """End the helpers, each after its call in flight. What they locked and nobody saves is unlocked."""


class BackendError(Exception):
    """A step that failed.

    Attributes:
        step: check, lock, save, restore, resume, undo, find, state, kill or devices.
        process: the process, if one.
        timed_out: the step did not end within its time; its helper was ended, what it does is not known.
        final: the process can neither go on nor be brought back.
    """

    def __init__(
        self, step: str, process: Process | None, why: str, *, timed_out: bool = False, final: bool = False
    ) -> None:
        whom = f" of process {process.pid}" if process else ""
        super().__init__(f"{step}{whom}: {why}")
        self.step, self.process, self.why, self.timed_out, self.final = step, process, why, timed_out, final
