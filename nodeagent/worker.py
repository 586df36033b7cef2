# SPDX-License-Identifier: Apache-2.0
"""One group on this node: obeys its directives in turn, answers each, and looks between them.

Groups are independent: each has a worker of its own. A newer directive takes the place of a PREPARE in hand; a COMMIT
in hand is finished first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Protocol

from ledger import defaults
from ledger.errors import LedgerError
from ledger.etcd.errors import EtcdError
from ledger.failpoint import FailpointError, armed, hit
from ledger.kept import Kept
from ledger.logs import afterwards
from ledger.records import (
    Ack,
    Directive,
    DirectiveKind,
    Fault,
    Outcome,
    Process,
    Processes,
    ProcessState,
)
from nodeagent import plan
from nodeagent.backends.base import BackendError
from nodeagent.early import Early
from nodeagent.errors import JournalUnwritable
from nodeagent.journal import Journal
from nodeagent.order import Answer, Order, Superseded
from nodeagent.picture import Picture, Seen
from nodeagent.store import NodeStore, Written
from nodeagent.switch import Switch

_log = logging.getLogger(__name__)

LOOK_EVERY = 1.0
_LOOK_WITHIN = 10.0
_PAUSE = 0.5
_VIEW_WITHIN = 30.0


class Surroundings(Protocol):
    """What a worker needs of its agent."""

    @property
    def incarnation(self) -> int:
        """0 while the agent is not registered."""

    @property
    def picture(self) -> Picture:
        """What the ledger says."""

    async def reached(self, revision: int, within: float) -> None:
        """Wait until the picture is as new as ``revision``."""


class Worker:
    """Runs until cancelled, or until nothing of its group is there any more. Raises CannotKill.

    Args:
        tick: when in each second it looks, seconds.
    """

    def __init__(
        self,
        group: str,
        switch: Switch,
        journal: Journal,
        store: NodeStore,
        surroundings: Surroundings,
        warm: Callable[[str, tuple[Process, ...]], None],
        *,
        tick: float = 0.0,
    ) -> None:
        self.group, self.switch = group, switch
        self._journal, self._store, self._around, self._warm = journal, store, surroundings, warm
        self._changed = asyncio.Event()
        self._newer = asyncio.Event()
        self._in_hand = 0
        self._prepared: tuple[int, int] = (0, 0)  # epoch and incarnation
        self._confirmed = time.monotonic()
        self._tick = tick
        self._looked: tuple[float, object] = (0.0, None)  # until when, and what for
        self._lost_since: dict[Process, float] = {}
        self._reported: frozenset[Process] = frozenset()
        self._complaint = ""

    def changed(self) -> None:
        """Something of the group has changed in the ledger."""
        self._changed.set()
        if self._in_hand and self._around.picture.directive(self.group) != self._in_hand:
            self._newer.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            try:
                seen = self._around.picture.seen(self.group)
                if seen.nothing and not self._holds_locks and self._journal.state.group(self.group).begun is None:
                    self._journal.flush()  # nobody comes here again to write what was noted of it
                    return
                if seen.errors:
                    self._complain(f"it stands still on this node: {seen.errors[0]}")
                    await self._let_go()
                    await self._changed.wait()
                elif seen.directive and not seen.answer() and self._around.incarnation:
                    await self._obey(seen, seen.directive)
                else:
                    await self._between(seen)
            except Superseded as error:
                _log.info("Group %s: looked at while it changed: %s.", self.group, error)
            except (LedgerError, EtcdError, BackendError, JournalUnwritable, FailpointError, TimeoutError) as error:
                self._complain(str(error))
                await self._wait(_PAUSE)
            else:
                self._complaint = ""

    def _complain(self, text: str) -> None:
        """Say what stands in the way once, not at every attempt."""
        if text != self._complaint:
            _log.warning("Group %s: %s", self.group, text)
        self._complaint = text

    # ------------------------------------------------------------------------------------------------- obeying

    async def _obey(self, seen: Seen, kept: Kept[Directive]) -> None:
        begun = time.monotonic()
        directive, incarnation = kept.value, self._around.incarnation
        self._newer.clear()
        self._in_hand = kept.mod
        order = self._order(seen, directive, begun)
        told = (self.group, directive.epoch, directive.kind.name, directive.on or "nobody")
        afterwards(_log, "Group %s, epoch %d: told to %s for %s.", *told)
        try:
            answer = await self._carry_out(order, kept, incarnation)
            await self._acknowledge(order, kept, incarnation, answer, begun)
        except Superseded:
            _log.info("Group %s, epoch %d: given up for a newer directive.", self.group, directive.epoch)
        finally:
            self._in_hand = 0

    def _order(self, seen: Seen, directive: Directive, begun: float) -> Order:
        default = defaults.PREPARE_MS if directive.kind is DirectiveKind.PREPARE else defaults.COMMIT_MS
        allowed = (directive.allowed_ms or default) / 1000
        picture = self._around.picture
        foreign = picture.foreign(self.group)
        return Order(directive, seen.records, seen.known, foreign, picture.parked, begun + allowed, self._newer)

    async def _carry_out(self, order: Order, kept: Kept[Directive], incarnation: int) -> Answer:
        directive = order.directive
        highest = self._journal.state.group(self.group).highest
        if directive.epoch < highest:
            return Answer(Outcome.STALE, why=f"epoch {highest} has been seen")
        try:
            begun = self._journal.state.group(self.group).begun
            if begun is not None and begun.epoch < directive.epoch:
                begun = None  # what it left is this directive's to put right
            # On the disk before anything is locked and before the answer: until then nobody has seen this epoch here.
            self._journal.note(self.group, highest=directive.epoch, begun=begun)
            hit("agent.epoch")
            match directive.kind:
                case DirectiveKind.PREPARE:
                    answer = await self.switch.prepare(order)
                    if answer.outcome is Outcome.PREPARED:
                        self._prepared = (directive.epoch, incarnation)
                    return answer
                case DirectiveKind.COMMIT:
                    return await self._commit(order, kept, incarnation)
                case DirectiveKind.RELEASE:
                    self._prepared = (0, 0)
                    return await self.switch.release(order)
        except JournalUnwritable as error:
            if directive.kind is DirectiveKind.RELEASE:
                raise  # nothing less than released will do: tried again
            self._journal.note(self.group, reserved=0)
            return Answer(Outcome.REFUSED, fault=Fault.NODE, why=str(error))

    async def _commit(self, order: Order, kept: Kept[Directive], incarnation: int) -> Answer:
        """COMMIT; who has not prepared in this epoch prepares first, and may still refuse (rule 15)."""
        if self._prepared != (order.directive.epoch, incarnation):
            answer = await self.switch.prepare(order)
            if answer.outcome is not Outcome.PREPARED:
                return answer
        self._prepared = (0, 0)

        async def confirm(processes: Processes) -> bool:
            now = self._around.picture.seen(self.group)
            if processes != now.records:
                await self._record(now, processes, kept.mod)  # in a transaction that compares the directive
                return True
            return await early.answer()

        async def ask() -> bool:
            await asyncio.sleep(0)  # the first look's question goes before it
            return await self._store.in_force(self.group, kept.mod)

        # Beside the looks and locks, not after them. Where nothing is on record, nothing will move, and nobody ask.
        async with Early(ask, at_once=bool(order.records.jobs)) as early:
            return await self.switch.commit(order, confirm)

    async def _acknowledge(
        self, order: Order, kept: Kept[Directive], incarnation: int, answer: Answer, begun: float
    ) -> None:
        ack = Ack(
            directive_revision=kept.mod,
            epoch=kept.value.epoch,
            incarnation=incarnation,
            outcome=answer.outcome,
            fault=answer.fault,
            failure=answer.failure,
            job=answer.job,
            why=answer.why,
            highest_epoch=self._journal.state.group(self.group).highest if answer.outcome is Outcome.STALE else 0,
            evidence=answer.evidence,
            lost=answer.lost,
            restored=answer.restored,
            took_ms=round((time.monotonic() - begun) * 1000),
            free_bytes=answer.free_bytes,
        )
        written, revision = await self._until_written(order, ack, answer.processes)
        said = (self.group, ack.epoch, ack.outcome.name, ack.why or f"within {ack.took_ms} ms", written.value)
        afterwards(_log, "Group %s, epoch %d: %s %s: %s.", *said)
        if armed():
            hit(f"agent.{kept.value.kind.name.lower()}.acked")
        if written is Written.DONE:
            self._confirmed = time.monotonic()
            self._settle(ack.outcome)
        if revision:
            # Decide nothing more on a view that does not have this answer yet.
            with contextlib.suppress(TimeoutError):
                await self._around.reached(revision, _VIEW_WITHIN)
        else:
            # Who loses a guard waits for the watch (rule 35).
            await self._wait(_PAUSE)

    async def _until_written(self, order: Order, ack: Ack, processes: Processes | None) -> tuple[Written, int]:
        """Try until etcd has the answer. If it cannot be reached for the time allowed, locks end (rule 18)."""
        limit = max(order.deadline, time.monotonic() + _PAUSE)
        while True:
            seen = self._around.picture.seen(self.group)
            there = seen.ack.mod if seen.ack else 0
            try:
                return await self._store.acknowledge(self.group, ack, processes, there)
            except EtcdError as error:
                if ack.outcome is Outcome.PREPARED and time.monotonic() > limit:
                    _log.warning("Group %s: the directive cannot be confirmed: unlocking. %s", self.group, error)
                    await self._unprepare()
                    raise
                _log.warning("Group %s: the answer is not written yet: %s", self.group, error)
                await asyncio.sleep(_PAUSE)

    def _settle(self, outcome: Outcome) -> None:
        """The answer is there: what the journal kept for it has served. A next life finds that out by itself."""
        if outcome in (Outcome.COMMITTED, Outcome.FAILED):
            self._journal.note(self.group, begun=None, reserved=0)

    async def _unprepare(self) -> None:
        self._prepared = (0, 0)
        await self.switch.unlock_prepared()

    # ------------------------------------------------------------------------------------------------- between

    async def _between(self, seen: Seen) -> None:
        """Nothing to obey: keep locks only while they are confirmed, look, and wait."""
        pause = LOOK_EVERY
        ack, kind = seen.answer(), seen.directive.value.kind if seen.directive else None
        state = self._journal.state.group(self.group)
        if ack and state.begun and ack.epoch >= state.begun.epoch:
            self._settle(ack.outcome)  # an earlier life died between its answer and its note of it
        # A refused COMMIT is not released: on a node that was dropped nothing may follow it for long (rule 23).
        refused = ack and ack.outcome is Outcome.REFUSED and kind is DirectiveKind.COMMIT
        over = ack is None or refused or ack.outcome in (Outcome.COMMITTED, Outcome.RELEASED)
        if ack and ack.outcome is Outcome.PREPARED:
            await self._confirm(seen)
        elif over and self._holds_locks:
            await self._let_go()
        elif not self._around.incarnation:
            pass  # neither answer nor record could be written; and another agent may be registered, and at work
        elif over:
            pause = await self._look_when_due(seen, ack)
        await self._wait(pause)

    @property
    def _holds_locks(self) -> bool:
        """Something is locked that no COMMIT has begun to save."""
        state = self._journal.state.group(self.group)
        return bool(state.locked) and state.begun is None

    async def _let_go(self) -> None:
        """Nobody can count on what is locked: no answer says so, and none could be written (rule 18)."""
        if self._holds_locks:
            _log.warning("Group %s: no directive is answered by what is locked: unlocking.", self.group)
            await self._unprepare()

    async def _confirm(self, seen: Seen) -> None:
        """Locks of PREPARE end by themselves if the directive is not known to be in force (rule 18)."""
        if seen.directive is None or not self._holds_locks:
            return
        allowed = (seen.directive.value.allowed_ms or defaults.PREPARE_MS) / 1000
        unsure = time.monotonic() - self._confirmed
        if unsure < allowed / 2:
            return
        try:
            if await self._store.in_force(self.group, seen.directive.mod):
                self._confirmed = time.monotonic()
                return
        except EtcdError as error:
            _log.warning("Group %s: the directive cannot be confirmed: %s", self.group, error)
        if time.monotonic() - self._confirmed >= allowed:
            _log.warning("Group %s: the directive is not confirmed for %.0f s: unlocking.", self.group, unsure)
            await self._unprepare()

    async def _look_when_due(self, seen: Seen, ack: Ack | None) -> float:
        """Once a second and on registration (rule 8): seconds until the next look.

        At the node's tick, so that all its groups share one call of the driver. Not right after a switch, which has
        looked itself, and whose job's next switch would have to wait for it.
        """
        what, now = (seen.devices, seen.registered), time.monotonic()
        due, whom = self._looked
        if what != whom or now >= due:
            due = now + LOOK_EVERY - (now - self._tick) % LOOK_EVERY
            self._looked = (due, what)
            self._journal.flush()
            if seen.devices:
                await self._look(seen, ack)
        return max(due - time.monotonic(), 0.0)

    async def _look(self, seen: Seen, ack: Ack | None) -> None:
        directive = seen.directive.value if seen.directive and ack else None
        on = directive.on if directive and not directive.keep else None
        findings = await self.switch.look(seen.devices, seen.known, within=_LOOK_WITHIN)
        await self._end_lost(seen, directive)
        processes = plan.between_switches(seen.records, findings, on)
        self._report(processes)
        self._warm(self.group, tuple(one.process for one in findings.found))
        if processes != seen.records and self._around.incarnation:
            await self._record(seen, processes, seen.directive.mod if seen.directive else 0)

    async def _record(self, seen: Seen, processes: Processes, directive: int) -> None:
        written, revision = await self._store.record(
            self.group,
            processes,
            directive=directive,
            incarnation=self._around.incarnation,
            seen=seen.processes.mod if seen.processes else 0,
        )
        hit("agent.record.written")
        if written is not Written.DONE:
            raise Superseded(written.value)
        await self._around.reached(revision, _VIEW_WITHIN)

    async def _end_lost(self, seen: Seen, directive: Directive | None) -> None:
        """Kill what is parked for a session that was lost, once its time is over (rule 21), by this agent's clock."""
        ttl = (directive.parked_ttl_ms if directive else 0) or defaults.PARKED_TTL_MS
        lost = {
            one.process
            for job in seen.records.jobs
            for one in job.processes
            if one.state is ProcessState.PARKED and one.lost_session and one.process
        }
        now = time.monotonic()
        self._lost_since = {one: self._lost_since.get(one, now) for one in lost}
        for process, since in self._lost_since.items():
            if now - since >= ttl / 1000:
                _log.warning("Group %s: process %d, parked and without a session, is killed.", self.group, process.pid)
                await self.switch.end(process)

    def _report(self, processes: Processes) -> None:
        out = {
            one.process: job.job for job in processes.jobs for one in job.processes if one.out_of_turn and one.process
        }
        for process in out.keys() - self._reported:
            _log.warning("Group %s: process %d of %s runs out of its turn.", self.group, process.pid, out[process])
        for process in set(processes.strangers) - self._reported:
            _log.warning("Group %s: process %d belongs to no job of the group.", self.group, process.pid)
        self._reported = frozenset(out) | frozenset(processes.strangers)

    async def _wait(self, seconds: float) -> None:
        # That time has passed is a change like any other; a bare timer, which costs half of `asyncio.timeout`.
        timer = asyncio.get_running_loop().call_later(seconds, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()
