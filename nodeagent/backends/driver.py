# SPDX-License-Identifier: Apache-2.0
"""What a driver must be able to do to one process and to a device.

A driver runs inside a helper process of the agent, one helper for each target process, because a driver call
can hang and then only a process can be ended. It is synchronous, and holds no state that matters: the truth
is the driver's own state, which outlives every agent.

The states and steps are those of NVIDIA's ``cuCheckpointProcess*``::

    RUNNING ──lock──▶ LOCKED ──checkpoint──▶ PARKED ──restore──▶ LOCKED ──unlock──▶ RUNNING

FAILED cannot be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from msgspec import Struct

from ledger.records import Device, ProcessState

Progress = Callable[[int, int], None]
"""Told bytes done and bytes in all, in that order; both 0 while nothing can be said."""


class DeviceUse(Struct, frozen=True):
    """What the driver says about one device.

    Attributes:
        used_bytes: device memory in use, by whomever.
        total_bytes: device memory in all.
        pids: the processes with something on the device, in the host's pid namespace. A parked process is not
        among
            them.
    """

    uuid: str
    used_bytes: int
    total_bytes: int
    pids: tuple[int, ...]


class Sight(Struct, frozen=True):
    """What was seen at one moment: at least what was asked for.

    Attributes:
        use: the account of each device, by UUID.
        states: of each process; None: it has no context on a device, and had none when it was parked.
    """

    use: dict[str, DeviceUse]
    states: dict[int, ProcessState | None]


class Verdict(Struct, frozen=True):
    """Whether a process could be saved *and* restored: the reason if not, and the bytes that it would
    take."""

    refused: str = ""
    bytes: int = 0


class DriverError(Exception):
    """A driver call that failed.

    Attributes:
        call: which one.
        pid: on which process; 0 for none.
        final: the process can neither go on nor be brought back.
    """

    def __init__(self, call: str, pid: int, why: str, *, final: bool = False) -> None:
        super().__init__(f"{call} of process {pid}: {why}" if pid else f"{call}: {why}")
        self.call, self.pid, self.why, self.final = call, pid, why, final


class NoContext(DriverError):
    """The process has no context on a device: it only counts devices, or has ended. Nothing has to be
    moved."""


class Driver(Protocol):
    """The primitives. Each raises `DriverError`; none retries."""

    def devices(self) -> Sequence[Device]:
        """The devices of this node."""

    def look(self, devices: Sequence[str], of: Collection[str], pids: Collection[int]) -> Sight:
        """What is on ``devices`` now, and the states of ``pids`` and of all processes on those of them in ``of``."""

    def check(self, pid: int) -> Verdict:
        """Whether the running process could be checkpointed and restored. Changes nothing."""

    def lock(self, pid: int, timeout_ms: int) -> None:
        """Keep the process from the device. The time bounds the attempt, not how long it stays locked."""

    def checkpoint(self, pid: int, progress: Progress) -> None:
        """Move the state of a LOCKED process to host memory and free its device memory."""

    def restore(self, pid: int, progress: Progress) -> None:
        """Move the state of a PARKED process back; it is LOCKED afterwards."""

    def unlock(self, pid: int) -> None:
        """Let a LOCKED process run."""
