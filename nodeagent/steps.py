# SPDX-License-Identifier: Apache-2.0
"""Single steps on the processes of one group, side by side, and what becomes of those that fail."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec.structs import replace

from ledger.records import Outcome, Process, ProcessState
from nodeagent import plan
from nodeagent.backends.base import Backend, BackendError, Findings, Found, Known
from nodeagent.backends.driver import Verdict
from nodeagent.order import Answer, CannotKill, Order
from nodeagent.plan import Scene

_log = logging.getLogger(__name__)

T = TypeVar("T")

_CLEANUP = 10.0
"""Seconds for a step that takes back or ends what went wrong, whatever time is left."""


async def side_by_side(work: Sequence[Coroutine[Any, Any, T]]) -> Sequence[T]:
    """Do all at once. What is alone, as on most nodes, needs no task of its own to be waited for."""
    if len(work) == 1:
        return [await work[0]]
    return await asyncio.gather(*work)


@dataclass(slots=True)
class Course:
    """How far a switch has come.

    Attributes:
        verdicts: of the checks; took_ms: of each step, milliseconds.
        lost: processes that were killed, or have ended.
        doomed: what is killed instead of saved.
        locked: whether this phase has locked anything.
        resisted: whether something could not be locked, and may be gone.
    """

    scene: Scene
    verdicts: dict[Process, Verdict] = field(default_factory=dict)
    took_ms: dict[Process, int] = field(default_factory=dict)
    lost: list[Process] = field(default_factory=list)
    doomed: tuple[Found, ...] = ()
    locked: bool = False
    resisted: bool = False

    def now(self, processes: Iterable[Found], state: ProcessState) -> None:
        """The driver has brought these into ``state``: what a look would show, had nothing else happened since."""
        self.scene = plan.with_state(self.scene, processes, state)


class Steps:
    """Of one group on this node.

    Attributes:
        doing: for people: what is in hand.
        moved: bytes done and in all of each process whose state is moving.
    """

    def __init__(self, group: str, backend: Backend) -> None:
        self.group, self.backend = group, backend
        self.doing = ""
        self.moved: dict[int, tuple[int, int]] = {}

    async def look(self, order: Order, course: Course) -> None:
        """See anew what is there. Raises BackendError."""
        findings = await self.find(order.directive.devices, order.known, within=order.left())
        course.scene = replace(course.scene, findings=findings)

    async def find(self, devices: Sequence[str], known: Known, *, within: float) -> Findings:
        return await self.backend.find(self.group, devices, known, within=within)

    async def take(
        self, targets: Iterable[Found], step: str, course: Course, within: float
    ) -> dict[Found, BackendError]:
        """Take one step for each of ``targets``, side by side. Returns those that failed."""
        failed: dict[Found, BackendError] = {}

        async def one(found: Found) -> None:
            begun = time.monotonic()
            try:
                await self._step(found.process, step, within)
            except BackendError as error:
                failed[found] = error
            finally:
                course.took_ms[found.process] = round((time.monotonic() - begun) * 1000)
                self.moved.pop(found.process.pid, None)

        await side_by_side([one(found) for found in targets])
        return failed

    async def _step(self, process: Process, step: str, within: float) -> None:
        def progress(done: int, total: int) -> None:
            self.moved[process.pid] = (done, total)

        match step:
            case "lock":
                await self.backend.lock(process, within=within)
            case "save":
                await self.backend.save(process, progress, within=within)
            case "restore":
                await self.backend.restore(process, progress, within=within)
            case "resume":
                await self.backend.resume(process, within=within)

    async def state(self, process: Process) -> ProcessState | None:
        return await self.backend.state(process, within=_CLEANUP)

    async def still_there(self, failed: Mapping[Found, BackendError]) -> dict[Found, BackendError]:
        """Without those that have meanwhile ended, or left the devices, by themselves: that is nobody's fault."""
        return {one: error for one, error in failed.items() if await self.state(one.process) is not None}

    async def sort(
        self, failed: Mapping[Found, BackendError]
    ) -> tuple[dict[Found, BackendError], dict[Found, BackendError]]:
        """Those that go on as they were, and those that are FAILED."""
        alive: dict[Found, BackendError] = {}
        ended: dict[Found, BackendError] = {}
        for one, error in failed.items():
            over = await self.state(one.process) is ProcessState.FAILED
            (ended if over else alive)[one] = error
        return alive, ended

    async def unlock(self, processes: Sequence[Process]) -> tuple[Process, ...]:
        """Take locks back. Returns the processes that had to be killed instead. Raises CannotKill."""

        async def one(process: Process) -> bool:
            try:
                if await self.state(process) is ProcessState.LOCKED:
                    await self.backend.undo(process, within=_CLEANUP)
            except BackendError as error:
                _log.error("Group %s: %s: it is killed.", self.group, error)
                await self.end(process)
                return True
            return False

        killed = await side_by_side([one(process) for process in processes])
        return tuple(process for process, was in zip(processes, killed, strict=True) if was)

    async def kill(self, course: Course, targets: Iterable[Found]) -> None:
        """Raises CannotKill."""
        for one in targets:
            _log.warning("Group %s: process %d of %s is killed.", self.group, one.process.pid, one.job)
            await self.end(one.process)
            course.lost.append(one.process)

    async def end(self, process: Process) -> None:
        """Kill one process. Raises CannotKill."""
        try:
            await self.backend.kill(process, within=_CLEANUP)
        except BackendError as error:
            raise CannotKill(f"Group {self.group}: {error}.") from error

    def answer(
        self, course: Course, outcome: Outcome, *, write: bool = False, done: bool = False, **more: Any
    ) -> Answer:
        """The end of a phase. ``write``: with the process record; ``done``: the incoming job is on."""
        scene = course.scene
        self.doing = ""
        return Answer(
            outcome,
            evidence=plan.evidence(scene, course.took_ms),
            lost=tuple(dict.fromkeys(course.lost)),
            restored=done and plan.brought_back(scene),
            free_bytes=sum(one.total_bytes - one.used_bytes for one in scene.findings.use),
            processes=plan.processes(scene, done=done) if write else None,
            **more,
        )
