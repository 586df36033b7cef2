# SPDX-License-Identifier: Apache-2.0
"""Carrying out one group's directives: PREPARE, RELEASE, and COMMIT up to its first irreversible step.

What is to be done is decided in `nodeagent.plan`; what the driver does is behind `nodeagent.backends.base`; what comes
once a COMMIT has begun is in `nodeagent.commit`. A step that cannot be taken back follows its entry in the journal,
never the other way round.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec.structs import replace

from ledger.failpoint import hit
from ledger.records import Fault, Outcome, Process, Processes, ProcessState
from nodeagent import plan
from nodeagent.backends.base import Backend, BackendError, Findings, Found, Known
from nodeagent.backends.driver import Verdict
from nodeagent.commit import Commit
from nodeagent.hostmemory import HostMemory
from nodeagent.journal import CommitBegun, Journal
from nodeagent.order import Answer, Order, Superseded
from nodeagent.plan import Refusal, Scene
from nodeagent.steps import Course, Steps, side_by_side

_log = logging.getLogger(__name__)

_LOCK_SHARE = 0.5
"""The part of what is left that an attempt to lock may take."""

_OUTLAST_KERNEL = 10.0
"""Seconds that a lock in hand has to end, once a newer directive is there: one that hangs must not hold that up."""


class Switch:
    """The switches of one group on this node."""

    def __init__(self, group: str, backend: Backend, journal: Journal, memory: HostMemory) -> None:
        self.group = group
        self._steps = Steps(group, backend)
        self._backend, self._journal, self._memory = backend, journal, memory

    @property
    def doing(self) -> str:
        """For people: what is in hand."""
        return self._steps.doing

    @property
    def moved(self) -> dict[int, tuple[int, int]]:
        """Bytes done and in all of each process whose state is moving."""
        return self._steps.moved

    # ------------------------------------------------------------------------------------------------ PREPARE

    async def prepare(self, order: Order) -> Answer:
        """Check everything, reserve host memory, lock what must go. All of it can be taken back.

        Raises Superseded, JournalUnwritable.
        """
        course, refusal = await self._make_ready(order)
        if refusal is not None:
            return await self._refuse(course, refusal)
        hit("agent.prepare.locked")
        if course.resisted:
            try:
                await self._steps.look(order, course)
            except BackendError as error:
                await self.unlock_prepared()
                return await self._refuse(course, Refusal(Fault.NODE, str(error)))
        return self._steps.answer(course, Outcome.PREPARED, write=True)

    async def _make_ready(self, order: Order) -> tuple[Course, Refusal | None]:
        """PREPARE's steps, which COMMIT repeats."""
        self._steps.doing = f"looking for what has to go before {order.directive.on or 'nobody'}"
        course = Course(self._scene(order))
        try:
            await self._steps.look(order, course)
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

    async def _check(self, order: Order, course: Course) -> None:
        async def one(found: Found) -> None:
            try:
                verdict = await self._backend.check(found.process, within=order.left())
            except BackendError as error:
                verdict = Verdict(refused=str(error))
            course.verdicts[found.process] = verdict

        # Saved already, and about to be: a locked process was checked before it was locked.
        out = [one for one in plan.outgoing(course.scene) if one.state is ProcessState.RUNNING]
        await side_by_side([one(found) for found in out])
        sizes = {process: verdict.bytes for process, verdict in course.verdicts.items()}
        course.scene = replace(course.scene, sizes=sizes)

    def _reserve(self, order: Order, course: Course) -> Refusal | None:
        """Put by the host memory for what is to be saved (rule 12)."""
        out = plan.outgoing(course.scene)
        needs = {one.process: course.scene.bytes(one.process) for one in out}
        short = ""
        if needs:
            others = self._journal.state.reserved_by_others(self.group)
            short = self._memory.shortage(needs, others, order.parked())
        if short and not order.directive.kill:
            return Refusal(Fault.NODE, f"host memory: {short}")
        course.doomed = plan.doomed(course.scene, course.verdicts, short=bool(short))
        self._journal.note(self.group, reserved=0 if short else sum(needs.values()))
        return None

    async def _lock(self, order: Order, course: Course) -> Refusal | None:
        """Lock all that goes, side by side; one that cannot be locked is killed if the directive says so."""
        out = [one for one in plan.outgoing(course.scene) if one.state is ProcessState.RUNNING]
        out = [one for one in out if one not in course.doomed]
        before = self._journal.state.group(self.group).locked
        # With it the epoch and the reservation are on the disk: before the first lock, and before the answer.
        self._journal.update(self.group, locked=_union(before, (one.process for one in out)))
        if not out:
            return None
        self._steps.doing = f"locking {len(out)} processes"
        try:
            failed = await self._unless_newer(order, self._steps.take(out, "lock", course, order.left(_LOCK_SHARE)))
        except Superseded:
            await self._undo(course, out)
            raise
        course.locked = True
        if not failed:
            course.now(out, ProcessState.LOCKED)
            return None
        course.resisted = True
        failed = await self._steps.still_there(failed)
        if not failed:
            return None
        if order.directive.kill:
            await self._steps.kill(course, failed)
            return None
        await self._undo(course, out)
        found, error = next(iter(failed.items()))
        return Refusal(Fault.OUTGOING, str(error), found.job)

    async def _refuse(self, course: Course, refusal: Refusal) -> Answer:
        self._journal.update(self.group, reserved=0)
        return self._steps.answer(course, Outcome.REFUSED, fault=refusal.fault, job=refusal.job, why=refusal.why)

    # ------------------------------------------------------------------------------------------------- COMMIT

    async def commit(self, order: Order, confirm: Callable[[Processes], Awaitable[bool]]) -> Answer:
        """Look and lock again, then go through with it (`Commit`).

        Args:
            confirm: puts the process record into the ledger where another one is there, and asks, in a linearizable
                way, whether the directive is still in force.

        Raises Superseded before anything irreversible, JournalUnwritable, CannotKill and what ``confirm`` raises.
        """
        course, refusal = await self._make_ready(order)
        if refusal is not None:
            return await self._refuse(course, refusal)
        hit("agent.commit.locked")
        try:
            if course.locked:
                await self._steps.look(order, course)  # what has come until then is seen, too (rule 8)
            if plan.moves_nothing(course.scene):
                # Nothing that could not be taken back: the answer's own guard is enough.
                self._journal.note(self.group, locked=(), reserved=0)
                return await Commit(self._steps, order, course).run()
            # Rule 9: what is parked is in the ledger before anything is saved.
            in_force = await confirm(plan.processes(course.scene))
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
        return await Commit(self._steps, order, course).run()

    # ------------------------------------------------------------------------------------------------ RELEASE

    async def release(self, order: Order) -> Answer:
        """Undo what PREPARE did. What cannot be unlocked is killed and named (rule 18)."""
        killed = await self.unlock_prepared()
        hit("agent.release.undone")
        course = Course(self._scene(order), lost=list(killed))
        try:
            await self._steps.look(order, course)
        except BackendError as error:
            _log.warning("Group %s: released, but it could not be looked at: %s.", self.group, error)
            return Answer(Outcome.RELEASED, lost=killed)
        return self._steps.answer(course, Outcome.RELEASED, write=True)

    async def unlock_prepared(self) -> tuple[Process, ...]:
        """Unlock what was locked before any COMMIT began. Returns the processes that had to be killed instead.

        Raises CannotKill.
        """
        self._steps.doing = "unlocking"
        killed = await self._steps.unlock(self._journal.state.group(self.group).locked)
        self._journal.update(self.group, locked=(), reserved=0)
        self._steps.doing = ""
        return killed

    async def _undo(self, course: Course, targets: Sequence[Found]) -> None:
        course.lost.extend(await self._steps.unlock([one.process for one in targets]))

    # ----------------------------------------------------------------------------------------- between switches

    async def look(self, devices: Sequence[str], known: Known, *, within: float) -> Findings:
        """What is there now. What is locked for nobody, as by a lock that came too late, is unlocked."""
        findings = await self._steps.find(devices, known, within=within)
        if late := plan.to_unlock(findings):
            _log.warning("Group %s: %d processes are locked for no switch: unlocking.", self.group, len(late))
            await self._steps.unlock([one.process for one in late])
            findings = await self._steps.find(devices, known, within=within)
        return findings

    async def end(self, process: Process) -> None:
        """Kill one process. Raises CannotKill."""
        await self._steps.end(process)

    # ------------------------------------------------------------------------------------------------- inside

    async def _unless_newer(
        self, order: Order, work: Awaitable[dict[Found, BackendError]]
    ) -> dict[Found, BackendError]:
        task = asyncio.ensure_future(work)
        newer = asyncio.create_task(order.newer.wait())
        try:
            await asyncio.wait({task, newer}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                # A lock that is given up would still come, once the kernel ends that it waits for, and stop whoever is
                # granted next.
                await asyncio.wait({task}, timeout=_OUTLAST_KERNEL)
                raise Superseded
            return task.result()
        finally:
            task.cancel()
            newer.cancel()
            await asyncio.gather(task, newer, return_exceptions=True)


def _union(before: Sequence[Process], more: Iterable[Process]) -> tuple[Process, ...]:
    return tuple(dict.fromkeys((*before, *more)))
