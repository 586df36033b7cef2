# SPDX-License-Identifier: Apache-2.0
"""Carrying out one group's directives: the steps of PREPARE, COMMIT and RELEASE, in their order.

What is to be done is decided in `nodeagent.plan`; what the driver does is behind `nodeagent.backends.base`. A step that
cannot be taken back follows its entry in the journal, never the other way round.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ledger.failpoint import hit
from ledger.records import (
    Failure,
    Fault,
    Outcome,
    Process,
    Processes,
    ProcessState,
)
from nodeagent import plan
from nodeagent.backends.base import Backend, BackendError, Findings, Found, Known
from nodeagent.backends.driver import Verdict
from nodeagent.hostmemory import HostMemory
from nodeagent.journal import CommitBegun, Journal
from nodeagent.order import Answer, CannotKill, Order, Superseded
from nodeagent.plan import Refusal, Scene

_log = logging.getLogger(__name__)

_LOCK_SHARE = 0.5
"""The part of what is left that an attempt to lock may take."""

_CLEANUP = 10.0
"""Seconds for a step that takes back or ends what went wrong, whatever time is left."""


@dataclass(slots=True)
class _Course:
    """How far a switch has come."""

    scene: Scene
    verdicts: dict[Process, Verdict] = field(default_factory=dict)
    took_ms: dict[Process, int] = field(default_factory=dict)
    lost: list[Process] = field(default_factory=list)
    doomed: tuple[Found, ...] = ()


class Switch:
    """The switches of one group on this node.

    Attributes:
        doing: for people: what is in hand.
        moved: bytes done and in all of each process whose state is moving.
    """

    def __init__(self, group: str, backend: Backend, journal: Journal, memory: HostMemory) -> None:
        self.group = group
        self.doing = ""
        self.moved: dict[int, tuple[int, int]] = {}
        self._backend, self._journal, self._memory = backend, journal, memory

    # ------------------------------------------------------------------------------------------------ PREPARE

    async def prepare(self, order: Order) -> Answer:
        """Check everything, reserve host memory, lock what must go. All of it can be taken back.

        Raises Superseded, JournalUnwritable.
        """
        course, refusal = await self._make_ready(order)
        if refusal is not None:
            return await self._refuse(course, refusal)
        hit("agent.prepare.locked")
        try:
            course.scene = replace(course.scene, findings=await self._look(order))
        except BackendError as error:
            await self.unlock_prepared()
            return await self._refuse(course, Refusal(Fault.NODE, str(error)))
        return self._answer(course, Outcome.PREPARED, write=True)

    async def _make_ready(self, order: Order) -> tuple[_Course, Refusal | None]:
        """PREPARE's steps, which COMMIT repeats."""
        self.doing = f"looking for what has to go before {order.directive.on or 'nobody'}"
        course = _Course(self._scene(order))
        try:
            course.scene = replace(course.scene, findings=await self._look(order))
        except BackendError as error:
            return course, Refusal(Fault.NODE, str(error))
        order.give_way()
        if refusal := plan.judge_findings(course.scene):
            return course, refusal
        await self._check(order, course)
        order.give_way()
        if refusal := plan.judge_checks(course.scene, course.verdicts):
            return course, refusal
        if refusal := plan.judge_incoming(course.scene):
            return course, refusal
        if refusal := self._reserve(order, course):
            return course, refusal
        hit("agent.prepare.checked")
        return course, await self._lock(order, course)

    def _scene(self, order: Order) -> Scene:
        return Scene(order.directive, order.records, findings=Findings(), foreign=order.foreign)

    async def _look(self, order: Order) -> Findings:
        return await self._backend.find(self.group, order.directive.devices, order.known, within=order.left())

    async def _check(self, order: Order, course: _Course) -> None:
        async def one(found: Found) -> None:
            try:
                verdict = await self._backend.check(found.process, within=order.left())
            except BackendError as error:
                verdict = Verdict(refused=str(error))
            course.verdicts[found.process] = verdict

        # Saved already, and about to be: a locked process was checked before it was locked.
        out = [one for one in plan.outgoing(course.scene) if one.state is ProcessState.RUNNING]
        await asyncio.gather(*map(one, out))
        sizes = {process: verdict.bytes for process, verdict in course.verdicts.items()}
        course.scene = replace(course.scene, sizes=sizes)

    def _reserve(self, order: Order, course: _Course) -> Refusal | None:
        """Put by the host memory for what is to be saved (rule 12)."""
        out = plan.outgoing(course.scene)
        needs = {one.process: course.scene.bytes(one.process) for one in out}
        others = self._journal.state.reserved_by_others(self.group)
        short = self._memory.shortage(needs, others, order.parked)
        if short and not order.directive.kill:
            return Refusal(Fault.NODE, f"host memory: {short}")
        course.doomed = plan.doomed(course.scene, course.verdicts, short=bool(short))
        self._journal.update(self.group, reserved=0 if short else sum(needs.values()))
        return None

    async def _lock(self, order: Order, course: _Course) -> Refusal | None:
        """Lock all that goes, side by side; one that cannot be locked is killed if the directive says so."""
        out = [one for one in plan.outgoing(course.scene) if one.state is ProcessState.RUNNING]
        out = [one for one in out if one not in course.doomed]
        before = self._journal.state.group(self.group).locked
        self._journal.update(self.group, locked=_union(before, (one.process for one in out)))
        self.doing = f"locking {len(out)} processes"
        within = order.left(_LOCK_SHARE)
        try:
            failed = await self._unless_newer(order, self._all(out, "lock", course, within))
        except Superseded:
            await self._undo(course, out)
            raise
        failed = await self._still_there(failed)
        if not failed:
            return None
        if order.directive.kill:
            await self._kill(course, failed)
            return None
        await self._undo(course, out)
        found, error = next(iter(failed.items()))
        return Refusal(Fault.OUTGOING, str(error), found.job)

    async def _refuse(self, course: _Course, refusal: Refusal) -> Answer:
        self._journal.update(self.group, reserved=0)
        return self._answer(course, Outcome.REFUSED, fault=refusal.fault, job=refusal.job, why=refusal.why)

    # ------------------------------------------------------------------------------------------------- COMMIT

    async def commit(
        self, order: Order, record: Callable[[Processes], Awaitable[None]], still: Callable[[], Awaitable[bool]]
    ) -> Answer:
        """Look and lock again, then save, verify, restore, resume.

        Args:
            record: puts the process record into the ledger.
            still: a linearizable read: whether the directive is still in force.

        Raises Superseded before anything irreversible, JournalUnwritable, and what the two callables raise.
        """
        course, refusal = await self._make_ready(order)
        if refusal is not None:
            return await self._refuse(course, refusal)
        hit("agent.commit.locked")
        try:
            course.scene = replace(course.scene, findings=await self._look(order))
            # Rule 9: what is parked is in the ledger before anything is saved.
            await record(plan.processes(course.scene))
            in_force = await still()
        except Exception:
            if self._journal.state.group(self.group).begun is None:
                await self.unlock_prepared()
            raise
        if not in_force:
            await self.unlock_prepared()
            raise Superseded
        # What is locked is this COMMIT's from here on. A note of it would outlive the COMMIT, and let a later release
        # unlock what was restored since and must not run yet.
        self._journal.update(self.group, begun=CommitBegun(order.directive.epoch, order.directive.on), locked=())
        hit("agent.commit.begun")
        try:
            return await self._go_through(order, course)
        except BackendError as error:
            return await self._fail(order, course, Failure.NOT_SAVED, "", str(error), fault=Fault.NODE)

    async def _go_through(self, order: Order, course: _Course) -> Answer:
        if failure := await self._save(order, course):
            return failure
        hit("agent.commit.saved")
        if failure := await self._verify_free(order, course):
            return failure
        hit("agent.commit.free")
        back = plan.restorable(course.scene)
        if failure := await self._restore(order, course, back):
            return failure
        hit("agent.commit.restored")
        course.scene = replace(course.scene, findings=await self._look(order))
        if refusal := plan.judge_findings(course.scene) or plan.judge_free(course.scene, self._backend.baseline_bytes):
            failed = Failure.NOT_SAVED
            return await self._fail(order, course, failed, refusal.job, refusal.why, fault=refusal.fault)
        if failure := await self._resume(order, course):
            return failure
        hit("agent.commit.resumed")
        course.scene = replace(course.scene, findings=await self._look(order))
        course.lost.extend(plan.gone(course.scene, order.directive.on))
        return self._answer(course, Outcome.COMMITTED, write=True, done=True)

    async def _save(self, order: Order, course: _Course) -> Answer | None:
        """Save what goes, side by side, and kill what is to be killed."""
        await self._kill(course, course.doomed)
        out = [one for one in plan.outgoing(course.scene) if one not in course.doomed]
        self.doing = f"saving {len(out)} processes"
        failed = await self._still_there(await self._all(out, "save", course, order.left()))
        alive, ended = await self._sort(failed)
        await self._kill(course, ended)
        if alive and order.directive.kill:
            await self._kill(course, alive)
            alive = {}
        if ended and not order.directive.kill:
            one, error = next(iter(ended.items()))
            return await self._fail(order, course, Failure.PROCESS_LOST, one.job, str(error))
        if alive:
            one, error = next(iter(alive.items()))
            return await self._fail(order, course, Failure.NOT_SAVED, one.job, str(error))
        return None

    async def _verify_free(self, order: Order, course: _Course) -> Answer | None:
        """Ask the driver whether the devices are free; a job's own word does not count."""
        went = plan.outgoing(course.scene)
        course.scene = replace(course.scene, findings=await self._look(order))
        refusal = plan.judge_findings(course.scene) or plan.judge_free(course.scene, self._backend.baseline_bytes)
        if refusal is not None and order.directive.kill and refusal.fault is Fault.OUTGOING:
            still_there = {one.process: one for one in (*went, *plan.outgoing(course.scene))}
            await self._kill(course, still_there.values())
            course.scene = replace(course.scene, findings=await self._look(order))
            refusal = plan.judge_free(course.scene, self._backend.baseline_bytes)
        if refusal is None:
            return None
        job = refusal.job or next((one.job for one in went), "")
        fault = refusal.fault if job else Fault.NODE
        return await self._fail(order, course, Failure.NOT_SAVED, job, refusal.why, fault=fault)

    async def _restore(self, order: Order, course: _Course, back: Sequence[Found]) -> Answer | None:
        self.doing = f"restoring {len(back)} processes of {order.directive.on}"
        failed = await self._all(back, "restore", course, order.left())
        return await self._not_restored(order, course, failed)

    async def _resume(self, order: Order, course: _Course) -> Answer | None:
        """Let the incoming job run: nothing else there can (rule 13)."""
        locked = [one for one in plan.staying(course.scene) if one.state is ProcessState.LOCKED]
        self.doing = f"resuming {len(locked)} processes of {order.directive.on}"
        failed = await self._all(locked, "resume", course, order.left())
        resisting = {
            one: error for one, error in failed.items() if await self._state(one.process) is not ProcessState.RUNNING
        }
        # Restored and for ever locked is neither on nor off: it ends.
        await self._kill(course, resisting)
        return await self._not_restored(order, course, resisting)

    async def _not_restored(self, order: Order, course: _Course, failed: Mapping[Found, BackendError]) -> Answer | None:
        """What had ended before it could be brought back is lost, and the rest goes on (rule 9); all else fails."""
        if not failed:
            return None
        states = {one: await self._state(one.process) for one in failed}
        course.lost.extend(one.process for one, state in states.items() if state is None)
        # What can never be restored is as lost as FAILED, and keeps host memory for nothing. The rest may come back.
        over = [
            one
            for one, state in states.items()
            if state is ProcessState.FAILED or (state is not None and failed[one].final)
        ]
        await self._kill(course, over)
        killed = [one for one, state in states.items() if state is None and failed[one].step == "resume"]
        left = [*killed, *(one for one, state in states.items() if state is not None)]
        if not left:
            return None
        why, job = str(failed[left[0]]), order.directive.on
        return await self._fail(order, course, Failure.NOT_RESTORED, job, why, fault=Fault.INCOMING)

    async def _fail(
        self,
        order: Order,
        course: _Course,
        failure: Failure,
        job: str,
        why: str,
        *,
        fault: Fault = Fault.OUTGOING,
    ) -> Answer:
        """A COMMIT that failed: what is there now is said and left as it is, until the next epoch."""
        try:
            course.scene = replace(course.scene, findings=await self._look(order))
        except BackendError as error:
            why = f"{why}; and {error}"
            return self._answer(course, Outcome.FAILED, fault=fault, failure=failure, job=job, why=why)
        return self._answer(course, Outcome.FAILED, fault=fault, failure=failure, job=job, why=why, write=True)

    # ------------------------------------------------------------------------------------------------ RELEASE

    async def release(self, order: Order) -> Answer:
        """Undo what PREPARE did. What cannot be unlocked is killed and named (rule 18)."""
        killed = await self.unlock_prepared()
        hit("agent.release.undone")
        scene = self._scene(order)
        try:
            scene = replace(scene, findings=await self._look(order))
        except BackendError as error:
            _log.warning("Group %s: released, but it could not be looked at: %s.", self.group, error)
            return Answer(Outcome.RELEASED, lost=killed)
        return self._answer(_Course(scene, lost=list(killed)), Outcome.RELEASED, write=True)

    async def unlock_prepared(self) -> tuple[Process, ...]:
        """Unlock what was locked before any COMMIT began. Returns the processes that had to be killed instead.

        Raises CannotKill.
        """
        self.doing = "unlocking"
        killed = await self._unlock(self._journal.state.group(self.group).locked)
        self._journal.update(self.group, locked=(), reserved=0)
        self.doing = ""
        return killed

    # ----------------------------------------------------------------------------------------- between switches

    async def look(self, devices: Sequence[str], known: Known, *, within: float) -> Findings:
        """What is there now. What is locked for nobody, as by a lock that came too late, is unlocked."""
        findings = await self._backend.find(self.group, devices, known, within=within)
        if late := plan.to_unlock(findings):
            _log.warning("Group %s: %d processes are locked for no switch: unlocking.", self.group, len(late))
            await self._unlock([one.process for one in late])
            findings = await self._backend.find(self.group, devices, known, within=within)
        return findings

    async def end(self, process: Process) -> None:
        """Kill one process. Raises CannotKill."""
        try:
            await self._backend.kill(process, within=_CLEANUP)
        except BackendError as error:
            raise CannotKill(f"Group {self.group}: {error}.") from error

    # ------------------------------------------------------------------------------------------------- inside

    async def _all(
        self, targets: Iterable[Found], step: str, course: _Course, within: float
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

        await asyncio.gather(*map(one, targets))
        return failed

    async def _step(self, process: Process, step: str, within: float) -> None:
        def progress(done: int, total: int) -> None:
            self.moved[process.pid] = (done, total)

        match step:
            case "lock":
                await self._backend.lock(process, within=within)
            case "save":
                await self._backend.save(process, progress, within=within)
            case "restore":
                await self._backend.restore(process, progress, within=within)
            case "resume":
                await self._backend.resume(process, within=within)

    async def _unless_newer(
        self, order: Order, work: Awaitable[dict[Found, BackendError]]
    ) -> dict[Found, BackendError]:
        task = asyncio.ensure_future(work)
        newer = asyncio.create_task(order.newer.wait())
        try:
            await asyncio.wait({task, newer}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise Superseded
            return task.result()
        finally:
            task.cancel()
            newer.cancel()
            await asyncio.gather(task, newer, return_exceptions=True)

    async def _state(self, process: Process) -> ProcessState | None:
        return await self._backend.state(process, within=_CLEANUP)

    async def _still_there(self, failed: Mapping[Found, BackendError]) -> dict[Found, BackendError]:
        """Without those that have meanwhile ended, or left the devices, by themselves: that is nobody's fault."""
        return {one: error for one, error in failed.items() if await self._state(one.process) is not None}

    async def _sort(
        self, failed: Mapping[Found, BackendError]
    ) -> tuple[dict[Found, BackendError], dict[Found, BackendError]]:
        """Those that go on as they were, and those that are FAILED."""
        alive: dict[Found, BackendError] = {}
        ended: dict[Found, BackendError] = {}
        for one, error in failed.items():
            over = await self._state(one.process) is ProcessState.FAILED
            (ended if over else alive)[one] = error
        return alive, ended

    async def _undo(self, course: _Course, targets: Sequence[Found]) -> None:
        course.lost.extend(await self._unlock([one.process for one in targets]))

    async def _unlock(self, processes: Sequence[Process]) -> tuple[Process, ...]:
        async def one(process: Process) -> bool:
            try:
                if await self._state(process) is ProcessState.LOCKED:
                    await self._backend.undo(process, within=_CLEANUP)
            except BackendError as error:
                _log.error("Group %s: %s: it is killed.", self.group, error)
                await self.end(process)
                return True
            return False

        killed = await asyncio.gather(*map(one, processes))
        return tuple(process for process, was in zip(processes, killed, strict=True) if was)

    async def _kill(self, course: _Course, targets: Iterable[Found]) -> None:
        for one in targets:
            _log.warning("Group %s: process %d of %s is killed.", self.group, one.process.pid, one.job)
            await self.end(one.process)
            course.lost.append(one.process)

    def _answer(
        self, course: _Course, outcome: Outcome, *, write: bool = False, done: bool = False, **more: Any
    ) -> Answer:
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


def _union(before: Sequence[Process], more: Iterable[Process]) -> tuple[Process, ...]:
    return tuple(dict.fromkeys((*before, *more)))
