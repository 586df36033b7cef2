# SPDX-License-Identifier: Apache-2.0
"""What stands around the production agent in the model: a device and a journal that can be put into any state.

The device has the driver's states and nothing else. Whatever may go wrong is a choice (`Choices`), so that the same
code is run once for every way in which things may turn out: each call fails or not, and before each effect, and while
a driver call is in flight, the agent may die.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from chaos.explore.invariants import Broken
from chaos.explore.state import Process, Record
from ledger.records import (
    Device,
    JobProcesses,
    Processes,
    ProcessRecord,
    ProcessState,
)
from ledger.records import Process as Named
from nodeagent.backends.base import BackendError, Findings, Found, Known
from nodeagent.backends.driver import DeviceUse, Progress, Verdict
from nodeagent.journal import GroupJournal, Journal, JournalState

GROUP = "g"
ROOM = 1_000
"""Bytes of the device: more than all jobs have."""

_FIRST_PID = 200
_STATES = {one.name: one for one in ProcessState}


class Died(BaseException):
    """The agent dies here."""


class Stop(BaseException):
    """Here the model goes on by itself: the agent has an answer, or nothing to do."""


def client_process(job: int, life: int) -> Named:
    """The process of a job's client, in this life of it."""
    return Named("boot", 100 + job, 10 * life)


def named(job: int, life: int) -> Named:
    """The process of a job on a device, started by the client in this life of it."""
    return Named("boot", _FIRST_PID + job, 10 * life + 5)


def job_of(process: Named) -> int:
    return process.pid - _FIRST_PID


def life_of(process: Named | None) -> int:
    """The client's life that this process is, or was started in; 0 for none."""
    return process.start_time // 10 if process else 0


@dataclass(slots=True)
class Choices:
    """What goes wrong in one run: follows a script, then nothing goes wrong, and notes where something might have.

    Attributes:
        left: how often each fault may still happen.
        lasting: the fault that has come to stay on this node.
        stays: whether faults of the node come to stay.
        taken: what went wrong, in order.
        open: for each choice made, how many ways there were.
    """

    left: Mapping[str, int]
    lasting: str
    stays: bool
    script: tuple[int, ...] = ()
    taken: list[str] = field(default_factory=list)
    open: list[int] = field(default_factory=list)
    heard: bool = False

    def happens(self, fault: str) -> bool:
        """Whether it goes wrong this time."""
        if self.lasting == fault:
            return True
        if not self._may(fault) or not self._choose(2):
            return False
        self.taken.append(fault)
        if self.stays:
            self.lasting = fault
        return True

    def dies(self, ways: int) -> int:
        """0: the agent lives on; else in which of ``ways`` ways it dies here."""
        if not self._may("restart"):
            return 0
        way = self._choose(ways + 1)
        if way:
            self.taken.append("restart")
        return way

    def hears(self) -> bool:
        """Whether the news that is on its way arrives now: once in a run at most, and it need not."""
        if self.heard or not self._choose(2):
            return False
        self.heard = True
        return True

    def _may(self, fault: str) -> bool:
        return self.left.get(fault, 0) > self.taken.count(fault)

    def _choose(self, ways: int) -> int:
        place = len(self.open)
        self.open.append(ways)
        return self.script[place] if place < len(self.script) else 0


class ModelJournal(Journal):
    """The production journal, on a disk in memory.

    Attributes:
        disk: what a crash leaves of it: all but what was only noted.
    """

    def __init__(self, state: GroupJournal, disk: GroupJournal, choices: Choices) -> None:
        self.state = JournalState(groups=MappingProxyType({GROUP: state}))
        self.disk = JournalState(groups=MappingProxyType({GROUP: disk}))
        self._noted = {GROUP} if state != disk else set()
        self._choices = choices
        self.dead = False

    def _append(self, state: JournalState, entries: Iterable[dict[str, Any]]) -> None:
        if self.dead or self._choices.dies(1):
            self.dead = True
            raise Died
        self.state = self.disk = state


@dataclass(slots=True)
class ModelDevice:
    """A `nodeagent.backends.base.Backend` over one device of one node.

    Attributes:
        helped: what helpers have locked and not begun to save.
        orphans: driver calls in flight when the agent died.
        refused: nothing may be saved: the node has refused (invariant 8).
        on: the job that is to come on, whose state may turn out not to fit.
        dead: the agent has died: nothing more happens here.
    """

    jobs: tuple[str, ...]
    processes: list[Process | None]
    choices: Choices
    refused: bool
    on: str
    helped: set[int] = field(default_factory=set)
    orphans: list[tuple[int, str]] = field(default_factory=list)
    dead: bool = False
    name: str = "model"
    parked_means_stopped: bool = True
    baseline_bytes: int = 0

    async def devices(self, *, within: float) -> Sequence[Device]:
        return (Device("gpu", ROOM),)

    async def use(self, devices: Sequence[str], *, within: float) -> Sequence[DeviceUse]:
        raise NotImplementedError

    async def find(self, group: str, devices: Sequence[str], known: Known, *, within: float) -> Findings:
        self._alive()
        if self.choices.happens("refuse"):
            raise BackendError("find", None, "it cannot be looked at")
        there = [(job, one) for job, one in enumerate(self.processes) if one]
        found = tuple(
            Found(
                named(job, one.session), self.jobs[job], _STATES[one.state], () if one.state == "PARKED" else ("gpu",)
            )
            for job, one in there
        )
        used = [job for job, one in there if one.state != "PARKED"]
        coming = self.on and any(self.jobs[job] == self.on for job, _ in there)
        room = 0 if coming and self.choices.happens("unfit") else ROOM
        return Findings(found, (), (DeviceUse("gpu", len(used), room, tuple(_FIRST_PID + job for job in used)),))

    async def check(self, process: Named, *, within: float) -> Verdict:
        self._alive()
        return Verdict("it cannot be saved", 1) if self.choices.happens("unsavable") else Verdict("", 1)

    async def lock(self, process: Named, *, within: float) -> None:
        self._effect(process, "lock")
        if self.choices.happens("resist"):
            raise BackendError("lock", process, "it resists")
        self._move(process, "RUNNING", "LOCKED")
        self.helped.add(job_of(process))

    async def save(self, process: Named, progress: Progress, *, within: float) -> None:
        self.helped.discard(job_of(process))
        self._effect(process, "save")
        if self.refused:
            raise Broken(8, f"a node saves {self.jobs[job_of(process)]}, and has refused to")
        if self.choices.happens("unsaved"):
            raise BackendError("save", process, "it is not saved")
        if self.choices.happens("fatal"):
            self._move(process, "LOCKED", "FAILED")
            raise BackendError("save", process, "it has failed", final=True)
        self._move(process, "LOCKED", "PARKED")

    async def restore(self, process: Named, progress: Progress, *, within: float) -> None:
        self._effect(process, "restore")
        if self.choices.happens("unrestored"):
            self._move(process, "PARKED", "FAILED")
            raise BackendError("restore", process, "it is not restored", final=True)
        self._move(process, "PARKED", "LOCKED")

    async def resume(self, process: Named, *, within: float) -> None:
        self._effect(process, "resume")
        self._move(process, "LOCKED", "RUNNING")

    async def undo(self, process: Named, *, within: float) -> None:
        self._effect(process, "undo")
        if self.choices.happens("stuck"):
            raise BackendError("undo", process, "it stays locked")
        self._move(process, "LOCKED", "RUNNING")
        self.helped.discard(job_of(process))

    async def state(self, process: Named, *, within: float) -> ProcessState | None:
        self._alive()
        one = self._there(process)
        return _STATES[one.state] if one else None

    async def kill(self, process: Named, *, within: float) -> None:
        self._alive()
        if self._there(process):
            self._before(ways=1)
            self.processes[job_of(process)] = None
            self.helped.discard(job_of(process))

    async def keep_warm(self, processes: Sequence[Named]) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def _there(self, process: Named) -> Process | None:
        one = self.processes[job_of(process)]
        return one if one and one.session == life_of(process) else None

    def _alive(self) -> None:
        if self.dead:
            raise Died

    def _before(self, ways: int) -> int:
        self._alive()
        way = self.choices.dies(ways)
        if way == 1:
            self.dead = True
            raise Died
        return way

    def _effect(self, process: Named, call: str) -> None:
        if self._before(ways=2) == 2:  # the helper outlives its agent, and ends its call
            self.orphans.append((job_of(process), call))
            self.dead = True
            raise Died
        if self._there(process) is None:
            raise BackendError(call, process, "it has ended")

    def _move(self, process: Named, before: str, after: str) -> None:
        job = job_of(process)
        there = self.processes[job]
        if there is None or there.state != before:
            raise BackendError("move", process, f"it is not {before}")
        self.processes[job] = moved(self.processes, job, before, after, self.jobs)


def moved(
    processes: Sequence[Process | None], job: int, before: str, after: str, jobs: Sequence[str]
) -> Process | None:
    """The process after a driver call. In any other state than ``before`` the driver does nothing.

    Raises Broken if another job can run beside it then.
    """
    one = processes[job]
    if one is None or one.state != before:
        return one
    if after == "RUNNING":
        beside = [jobs[j] for j, other in enumerate(processes) if j != job and other and other.state == "RUNNING"]
        if beside:
            raise Broken(1, f"{jobs[job]} and {beside[0]} can run on one node at the same time")
    return one._replace(state=after)


ORPHANED = {
    "lock": ("RUNNING", "LOCKED"),
    "save": ("LOCKED", "PARKED"),
    "restore": ("PARKED", "LOCKED"),
    "resume": ("LOCKED", "RUNNING"),
    "undo": ("LOCKED", "RUNNING"),
}
"""What a driver call does that its helper ends after the agent's death."""


@dataclass(frozen=True, slots=True)
class NoShortage:
    """Host memory without end."""

    def total(self) -> int:
        return ROOM

    def shortage(self, needs: Mapping[Named, int], promised: int, parked: int) -> str:
        return ""


def processes_of(records: Sequence[Record | None], jobs: Sequence[str]) -> Processes:
    """The record as it is in the ledger."""
    listed = (
        JobProcesses(
            jobs[job],
            (
                ProcessRecord(
                    named(job, one.session),
                    _STATES[one.state],
                    0 if one.state == "FAILED" else 1,
                    client_process(job, one.lost) if one.lost else None,
                ),
            ),
        )
        for job, one in enumerate(records)
        if one
    )
    return Processes(jobs=tuple(listed))


def records_of(processes: Processes, jobs: Sequence[str]) -> tuple[Record | None, ...]:
    """The record as the model has it: of each job the process that is there, else the one that is named as ended."""
    found: list[Record | None] = [None] * len(jobs)
    for one in processes.jobs:
        last = one.processes[-1]
        for process in one.processes:
            if process.state is not ProcessState.FAILED:
                last = process
        assert last.process is not None
        found[jobs.index(one.job)] = Record(last.state.name, life_of(last.process), life_of(last.lost_session))
    return tuple(found)
