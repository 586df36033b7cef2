# SPDX-License-Identifier: Apache-2.0
"""COMMIT from its first irreversible step on: save, verify, restore, resume.

It ends in COMMITTED or FAILED, never by taking something back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledger.failpoint import hit
from ledger.records import Failure, Fault, Outcome, ProcessState
from nodeagent import plan
from nodeagent.backends.base import BackendError, Found
from nodeagent.order import Answer, Order
from nodeagent.plan import Refusal
from nodeagent.steps import Course, Steps


class Commit:
    """One COMMIT of one group, begun on the findings that ``course`` has."""

    def __init__(self, steps: Steps, order: Order, course: Course) -> None:
        self._steps, self._order, self._course = steps, order, course

    async def run(self) -> Answer:
        """Go through with it. Raises CannotKill."""
        try:
            return await self._go_through()
        except BackendError as error:
            return await self._fail(Failure.NOT_SAVED, "", str(error), fault=Fault.NODE)

    async def _go_through(self) -> Answer:
        course, on = self._course, self._order.directive.on
        if failure := await self._save():
            return failure
        hit("agent.commit.saved")
        if failure := await self._verify_free():
            return failure
        hit("agent.commit.free")
        back = plan.restorable(course.scene)
        if failure := await self._restore(back):
            return failure
        hit("agent.commit.restored")
        if back or plan.locked(course.scene):
            # Once more before the incoming job may run (rules 8 and 13).
            await self._look()
            if refusal := self._judge():
                return await self._fail(Failure.NOT_SAVED, refusal.job, refusal.why, fault=refusal.fault)
            if failure := await self._resume():
                return failure
        hit("agent.commit.resumed")
        course.lost.extend(plan.gone(course.scene, on))
        return self._steps.answer(course, Outcome.COMMITTED, write=True, done=True)

    async def _look(self) -> None:
        await self._steps.look(self._order, self._course)

    def _judge(self) -> Refusal | None:
        scene = self._course.scene
        return plan.judge_findings(scene) or plan.judge_free(scene, self._steps.backend.baseline_bytes)

    async def _save(self) -> Answer | None:
        """Save what goes, side by side, and kill what is to be killed."""
        course, steps, directive = self._course, self._steps, self._order.directive
        await steps.kill(course, course.doomed)
        out = [one for one in plan.outgoing(course.scene) if one not in course.doomed]
        steps.doing = f"saving {len(out)} processes"
        failed = await steps.still_there(await steps.take(out, "save", course, self._order.left()))
        alive, ended = await steps.sort(failed)
        await steps.kill(course, ended)
        if alive and directive.kill:
            await steps.kill(course, alive)
            alive = {}
        if ended and not directive.kill:
            one, error = next(iter(ended.items()))
            return await self._fail(Failure.PROCESS_LOST, one.job, str(error))
        if alive:
            one, error = next(iter(alive.items()))
            return await self._fail(Failure.NOT_SAVED, one.job, str(error))
        return None

    async def _verify_free(self) -> Answer | None:
        """Ask the driver whether the devices are free; a job's own word does not count."""
        course, directive = self._course, self._order.directive
        went = plan.outgoing(course.scene)
        if went:
            await self._look()
        refusal = self._judge()
        if refusal is not None and directive.kill and refusal.fault is Fault.OUTGOING:
            still_there = {one.process: one for one in (*went, *plan.outgoing(course.scene))}
            await self._steps.kill(course, still_there.values())
            await self._look()
            refusal = plan.judge_free(course.scene, self._steps.backend.baseline_bytes)
        if refusal is None:
            return None
        job = refusal.job or next((one.job for one in went), "")
        fault = refusal.fault if job else Fault.NODE
        return await self._fail(Failure.NOT_SAVED, job, refusal.why, fault=fault)

    async def _restore(self, back: Sequence[Found]) -> Answer | None:
        self._steps.doing = f"restoring {len(back)} processes of {self._order.directive.on}"
        return await self._not_restored(await self._steps.take(back, "restore", self._course, self._order.left()))

    async def _resume(self) -> Answer | None:
        """Let the incoming job run: nothing else there can (rule 13)."""
        course, steps = self._course, self._steps
        locked = plan.locked(course.scene)
        steps.doing = f"resuming {len(locked)} processes of {self._order.directive.on}"
        failed = await steps.take(locked, "resume", course, self._order.left())
        if not failed:
            course.now(locked, ProcessState.RUNNING)
            return None
        states = {one: await steps.state(one.process) for one in failed}
        # Who has ended by itself since it was restored, as when its client was killed, is nobody's fault.
        course.lost.extend(one.process for one, state in states.items() if state is None)
        resisting = {one: failed[one] for one, state in states.items() if state not in (None, ProcessState.RUNNING)}
        # Restored and for ever locked is neither on nor off: it ends.
        await steps.kill(course, resisting)
        if failure := await self._not_restored(resisting):
            return failure
        await self._look()
        return None

    async def _not_restored(self, failed: Mapping[Found, BackendError]) -> Answer | None:
        """What had ended before it could be brought back is lost, and the rest goes on (rule 9); all else fails."""
        if not failed:
            return None
        course, steps = self._course, self._steps
        states = {one: await steps.state(one.process) for one in failed}
        course.lost.extend(one.process for one, state in states.items() if state is None)
        # What can never be restored is as lost as FAILED, and keeps host memory for nothing. The rest may come back.
        over = [
            one
            for one, state in states.items()
            if state is ProcessState.FAILED or (state is not None and failed[one].final)
        ]
        await steps.kill(course, over)
        killed = [one for one, state in states.items() if state is None and failed[one].step == "resume"]
        left = [*killed, *(one for one, state in states.items() if state is not None)]
        if not left:
            return None
        why, job = str(failed[left[0]]), self._order.directive.on
        return await self._fail(Failure.NOT_RESTORED, job, why, fault=Fault.INCOMING)

    async def _fail(self, failure: Failure, job: str, why: str, *, fault: Fault = Fault.OUTGOING) -> Answer:
        """What is there now is said and left as it is, until the next epoch."""
        seen = True
        try:
            await self._look()
        except BackendError as error:
            seen, why = False, f"{why}; and {error}"
        return self._steps.answer(
            self._course, Outcome.FAILED, write=seen, fault=fault, failure=failure, job=job, why=why
        )
