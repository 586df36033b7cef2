# SPDX-License-Identifier: Apache-2.0
"""One group in a replica: whenever something of it changes or a wait passes, what follows is decided and written."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from coordinator.apply.errors import EngineError
from coordinator.apply.hedge import HoldBack
from coordinator.decide import Decision, GroupView, Verdict, Wait, decide
from coordinator.decide.commands import Refusal
from ledger import failpoint

if TYPE_CHECKING:
    from coordinator.apply.engine import Engine

log = logging.getLogger(__name__)

WRITE_WITHIN = 5.0
"""Seconds for one write of a decision."""

GATHER = 0.001
"""Seconds for which the answers of many nodes are gathered, unless the last of them is there before."""

PAUSE = 0.2
"""Seconds to wait after a write that etcd did not take, before deciding again."""


class GroupWorker:
    """Decides for one group and applies what it decides, one decision at a time.

    It has a task only while it writes: between two writes it is a callback of the event loop.
    """

    def __init__(self, engine: Engine, group: str) -> None:
        self._engine = engine
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._woken = False
        self._awaited = 0  # changes that have to come before anything good can follow
        self._gathering: asyncio.TimerHandle | None = None
        self._stopped = False
        self._hold_back = HoldBack()
        self._passed: frozenset[Wait] = frozenset()
        self._timers: dict[Wait, asyncio.TimerHandle] = {}
        self._recheck: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Something has changed.

        Looked at one by one, the answers of so many nodes would take the square of their number: those that come
        together are looked at together. The last of them waits for nothing; a refusal, or any other news, for `GATHER`.
        """
        self._awaited -= 1
        if self._awaited > 0:
            if self._gathering is None:
                self._gathering = self._loop.call_later(GATHER, self._look_soon)
            return
        self._look_soon()

    def _look_soon(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        if not self._woken:
            self._woken = True
            if self._writing is None:
                self._loop.call_soon(self._look)

    def stop(self) -> None:
        """Decide no more; a write in flight goes on."""
        self._stopped = True
        self._forget_waits()
        for timer in (self._recheck, self._gathering):
            if timer is not None:
                timer.cancel()

    async def close(self) -> None:
        """End; a write in flight is finished within `WRITE_WITHIN`."""
        self.stop()
        if self._writing is not None:
            await asyncio.wait({self._writing})

    def _look(self) -> None:
        """Decide once for all that has changed since the last time."""
        self._woken, self._awaited = False, 0
        if self._stopped:
            return
        try:
            found = self._step()
        except Exception:
            log.exception("Deciding failed; it is tried again.", extra={"group": self._group})
            self._again(PAUSE * 10)
            return
        if found is not None:
            self._writing = self._loop.create_task(self._write(*found), name=f"decision on group {self._group}")
            self._writing.add_done_callback(self._written)

    def _step(self) -> tuple[GroupView, Decision] | None:
        """What is to be written now, and the view that it was decided on."""
        engine = self._engine
        if not engine.view.live:
            self._forget_waits()
            self._again(PAUSE)
            return None
        if engine.picture.revision < engine.floor(self._group):
            return None  # the watch will bring our own write, and wake us
        if (error := engine.picture.group_error(self._group)) is not None:
            engine.picture.notes[self._group] = str(error)
            return None
        view = engine.picture.group(self._group, self._passed)
        if view is None:
            return None
        verdict = decide(view)
        engine.picture.notes[self._group] = verdict.note or (verdict.decision.why if verdict.decision else "")
        self._keep_waits(view, verdict)
        self._awaited = verdict.unanswered
        if verdict.decision is None:
            self._hold_back.end()
            return None
        if self._holds_back(view):
            return None
        return view, verdict.decision

    async def _write(self, view: GroupView, decision: Decision) -> None:
        deadline = self._engine.clock() + WRITE_WITHIN
        _pass_point(decision, "decided")
        await self._engine.write(view, decision, deadline)
        _pass_point(decision, "written")
        self.wake()

    def _written(self, written: asyncio.Task[None]) -> None:
        """Go on, after what has changed in the meantime or what has failed."""
        self._writing = None
        error = None if written.cancelled() else written.exception()
        if isinstance(error, EngineError | Refusal):
            log.warning("A decision was not written: %s", error, extra={"group": self._group})
            self._again(PAUSE * self._engine.random.uniform(0.5, 1.5))
        elif error is not None:
            log.error("Writing failed; it is tried again.", extra={"group": self._group}, exc_info=error)
            self._again(PAUSE * 10)
        if self._woken:
            self._loop.call_soon(self._look)

    # ------------------------------------------------------------------------------------------------ who goes first

    def _holds_back(self, view: GroupView) -> bool:
        """Whether another replica has the first go at this turn. Remembers who was passed over when it has not."""
        engine = self._engine
        ahead = engine.ahead(self._group)
        if not ahead:
            return False
        turn_mod = view.turn.mod if view.turn else 0
        left = self._hold_back.left(turn_mod, engine.clock(), engine.latency.hold_back(len(ahead), engine.random))
        if left > 0:
            self._again(left)
            return True
        for name, create in ahead.items():
            engine.distrust.add(name, create)
        return False

    def _again(self, seconds: float) -> None:
        """Look again after so many seconds, unless something wakes us before."""
        if self._recheck is not None:
            self._recheck.cancel()
        if not self._stopped:
            self._recheck = self._loop.call_later(seconds, self.wake)

    # ------------------------------------------------------------------------------------------------ waits

    def _keep_waits(self, view: GroupView, verdict: Verdict) -> None:
        """Start a timer for each new wait, end those that are not wanted any more."""
        turn = view.turn.value if view.turn else None
        current = (turn.epoch, turn.token) if turn else ()
        self._passed = frozenset(
            wait for wait in self._passed if wait.key in current and not view.node(wait.node).agent
        )
        for wait in [wait for wait in self._timers if wait not in verdict.waits]:
            self._timers.pop(wait).cancel()
        for wait in verdict.waits - self._timers.keys() - self._passed:
            self._timers[wait] = self._loop.call_later(wait.ms / 1000, self._pass, wait, self._engine.view.breaks)

    def _pass(self, wait: Wait, breaks: int) -> None:
        """A wait is over, if the view was live all the time; else it begins anew (protocol rule 24).

        ``breaks``: those of the view when the wait began.
        """
        self._timers.pop(wait, None)
        if self._engine.view.live and self._engine.view.breaks == breaks:
            self._passed |= {wait}
        self.wake()

    def _forget_waits(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


def _pass_point(decision: Decision, step: str) -> None:
    """The failpoint before or after the write of a turn, by the phase that the turn comes to."""
    if failpoint.armed() and decision.turn is not None:
        failpoint.hit(f"replica.{decision.turn.phase.name.lower()}.{step}")
