# SPDX-License-Identifier: Apache-2.0
"""Faults that a simulated device can be told to have."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum


class FaultKind(Enum):
    """What goes wrong, and in which call."""

    LOCK_HANGS = "lock-hangs"  # until the fault is cleared; its time limit is not heeded
    LOCK_REFUSED = "lock-refused"
    CHECKPOINT_FAILS = "checkpoint-fails"  # the process stays LOCKED
    CHECKPOINT_BREAKS = "checkpoint-breaks"  # the process is FAILED
    RESTORE_FAILS = "restore-fails"  # the process stays PARKED
    RESTORE_BREAKS = "restore-breaks"  # the process is FAILED
    RESTORE_NEVER = "restore-never"  # the process stays PARKED, and the driver says that this is final
    UNLOCK_FAILS = "unlock-fails"
    SLOW = "slow"  # `ms` more for each checkpoint and restore
    MEMORY_NOT_FREED = "memory-not-freed"  # its memory is still in use after a checkpoint
    SAVE_LOSES_DATA = "save-loses-data"  # what a checker of restored bytes must notice
    LISTED = "listed"  # the account of the devices names a process that has no context, as one that counts them
    NCCL = "nccl"  # the process holds what cannot be restored: its check refuses


@dataclass(slots=True)
class Fault:
    """A fault of every process of a job, or of one pid; of every process where neither is named.

    Attributes:
        times: how often it still strikes; -1: until it is cleared.
    """

    kind: FaultKind
    job: str = ""
    pid: int = 0
    times: int = -1
    ms: int = 0

    def meets(self, job: str, pid: int) -> bool:
        return (not self.job or self.job == job) and (not self.pid or self.pid == pid) and self.times != 0


class Faults:
    """The faults in force."""

    def __init__(self) -> None:
        self._all: list[Fault] = []
        self._cleared = asyncio.Condition()

    def add(self, fault: Fault) -> None:
        self._all.append(fault)

    async def clear(self) -> None:
        self._all.clear()
        async with self._cleared:
            self._cleared.notify_all()

    def has(self, kind: FaultKind, job: str, pid: int) -> Fault | None:
        """The fault in force, without using it up."""
        return next((one for one in self._all if one.kind is kind and one.meets(job, pid)), None)

    def pids(self, kind: FaultKind) -> list[int]:
        """The processes that have it by name."""
        return [one.pid for one in self._all if one.kind is kind and one.pid]

    def strike(self, kind: FaultKind, job: str, pid: int) -> Fault | None:
        """The fault in force, used once."""
        fault = self.has(kind, job, pid)
        if fault is not None and fault.times > 0:
            fault.times -= 1
        return fault

    async def hang(self) -> None:
        """Wait until the faults are cleared, however long that takes: a hang is what is asked for."""
        async with self._cleared:
            await self._cleared.wait()
