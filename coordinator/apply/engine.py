# SPDX-License-Identifier: Apache-2.0
"""A replica at work: it follows the ledger, carries out commands and decides what follows from what it sees.

Any replica may apply any decision; the transaction's guards make sure that only one of equal decisions is written. The
engine adds what is not pure: the live view, the waits, and who goes first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random

from msgspec import Struct

from coordinator.apply.errors import Conflict, EngineBehind, EngineUnavailable
from coordinator.apply.hedge import Distrust, Latency, before, serving
from coordinator.apply.transaction import transaction
from coordinator.apply.worker import GroupWorker
from coordinator.decide import Decision, GroupView
from coordinator.decide.commands import Nothing, Refusal
from coordinator.picture import Picture
from ledger.errors import LedgerError
from ledger.etcd import EtcdClient, GroupCommit
from ledger.etcd.errors import EtcdError, LeaseNotFound, Unavailable
from ledger.etcd.txn import Compare, Op
from ledger.keys import Keys
from ledger.logs import afterwards
from ledger.view import Changes, LedgerView

log = logging.getLogger(__name__)


class Applied(Struct, frozen=True):
    """A decision that is written, at ``revision``."""

    revision: int
    decision: Decision


class Engine:
    """One replica's view of the ledger and its hands.

    Attributes:
        picture: what the replica knows.
        commit: sends its transactions, those of different groups together.
        latency: how long its transactions have taken lately, the wait for those before them included: so long as
            another replica has to expect to wait for one.
        distrust: which other replicas it has had to act for.
    """

    def __init__(
        self,
        client: EtcdClient,
        keys: Keys,
        replica_id: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        self.client = client
        self.keys = keys
        self.replica_id = replica_id
        self.clock = clock
        self.random = random or Random()
        self.commit = GroupCommit(client)
        self.latency = Latency(clock)
        self.distrust = Distrust(clock)
        self.view = LedgerView(client, keys.root, self._changed)
        self.picture = Picture(keys, lambda: self.view.live)
        self._floors: dict[str, int] = {}  # by group: the revision of our own last write to it
        self._turning: dict[str, int] = {}  # by group: commands that write its turn at this moment
        self._workers: dict[str, GroupWorker] = {}
        self._listeners: set[Callable[[frozenset[str]], None]] = set()
        self._sessions_listeners: set[Callable[[frozenset[str]], None]] = set()
        self._session_listeners: defaultdict[str, set[Callable[[], None]]] = defaultdict(set)
        self._closing = False

    async def start(self, within: float = 10.0) -> None:
        """Begin to follow the ledger and to decide.

        Raises:
            EngineUnavailable: the first list did not come within so many seconds.
        """
        try:
            await self.view.start(within)
        except TimeoutError as error:
            await self.close()
            raise EngineUnavailable(f"etcd has not answered within {within:g} s") from error

    async def close(self) -> None:
        """Stop deciding; writes in flight are finished."""
        self._closing = True
        await asyncio.gather(*(worker.close() for worker in self._workers.values()))
        await self.view.close()

    # ------------------------------------------------------------------------------------------------ commands

    async def command(
        self,
        group: str,
        ask: Callable[[GroupView], Decision | Nothing],
        *,
        within: float = 5.0,
        guards: Sequence[Compare] = (),
    ) -> Applied | Nothing:
        """Ask on the newest view and write the answer; who loses a guard waits for the watch and asks again.

        A refusal, that a record cannot be read, or that nothing is to be done, is believed only on a view that is as
        new as etcd itself: another may have written what this replica has not seen yet.

        Args:
            guards: of whatever is written, beside the decision's own; ``ask`` has to refuse when one is lost for good.

        Raises:
            Refusal: from ``ask``, or SESSION_EXPIRED where a new ticket's session has ended.
            LedgerError: a record of the group cannot be read.
            EngineUnavailable, EngineBehind, Conflict: it was not carried out within so many seconds.
        """
        deadline = self.clock() + within
        confirmed = False
        while True:
            try:
                view = await self._newest(group, deadline)
                answer = ask(view)
            except (Refusal, LedgerError):
                if confirmed:
                    raise
                confirmed = await self._confirm(group, deadline)
                continue
            if isinstance(answer, Nothing):
                if confirmed:
                    return answer
                confirmed = await self._confirm(group, deadline)
                continue
            confirmed = False
            if answer.turn is None:
                revision = await self.write(view, answer, deadline, guards)
            else:
                revision = await self._write_turn(view, answer, deadline, guards)
            if revision is not None:
                return Applied(revision, answer)
            if self.clock() >= deadline:
                raise Conflict(f"others changed group {group} again and again")

    async def command_all(
        self,
        groups: Sequence[str],
        ask: Callable[[GroupView], Decision | Nothing],
        *,
        within: float = 5.0,
        guards: Sequence[Compare] = (),
    ) -> int | None:
        """As `command`, for several groups in one transaction: it is carried out in all or in none.

        Returns:
            The transaction's revision; None if nothing was to be done in any of them.

        Raises:
            Refusal: also EVICTED, where it had been carried out and is undone in some of them.
            LedgerError, EngineUnavailable, EngineBehind, Conflict: as `command`.
        """
        if len(groups) == 1:
            done = await self.command(groups[0], ask, within=within, guards=guards)
            return done.revision if isinstance(done, Applied) else None
        deadline = self.clock() + within
        confirmed = False
        while True:
            try:
                views = [await self._newest(group, deadline) for group in groups]
                decisions = _of_all(views, ask)
            except (Refusal, LedgerError):
                if confirmed:
                    raise
                confirmed = await self._confirm(groups[0], deadline)
                continue
            if not decisions:
                if confirmed:
                    return None
                confirmed = await self._confirm(groups[0], deadline)
                continue
            confirmed = False
            revision = await self._write(decisions, deadline, guards)
            if revision is not None:
                return revision
            if self.clock() >= deadline:
                raise Conflict(f"others changed groups {', '.join(groups)} again and again")

    async def write(
        self, view: GroupView, decision: Decision, deadline: float, guards: Sequence[Compare] = ()
    ) -> int | None:
        """Apply ``decision``. Returns its revision; None if a guard was lost, once the view shows why.

        Raises:
            Refusal, EngineUnavailable, EngineBehind, Conflict: as `command`.
        """
        return await self._write([(view, decision)], deadline, guards)

    async def _write_turn(
        self, view: GroupView, decision: Decision, deadline: float, guards: Sequence[Compare]
    ) -> int | None:
        """As `write`. Nothing is decided about the group meanwhile, since one of the two would lose its guard."""
        name = view.name
        self._turning[name] = self._turning.get(name, 0) + 1
        try:
            with self.view.writing(self.keys.turn(name)) as writing:
                revision = await self.write(view, decision, deadline, guards)
                # No node is to answer, and nobody else waits.
                writing.rests = revision is not None and not decision.directives and self.commit.idle
            return revision
        finally:
            self._turning[name] -= 1
            if not self._turning[name]:
                del self._turning[name]
            if name in self._workers and self.picture.revision >= self.floor(name):
                self._workers[name].wake()  # what else has come meanwhile; else the watch is to bring it

    async def _write(
        self, decisions: Sequence[tuple[GroupView, Decision]], deadline: float, guards: Sequence[Compare] = ()
    ) -> int | None:
        """As `write`, for decisions about different groups, in one transaction."""
        compares: list[Compare] = [*guards]
        ops: list[Op] = []
        for view, decision in decisions:
            txn = transaction(self.keys, view, decision)
            compares += txn.compares
            ops += txn.ops
        began = self.clock()
        left = max(deadline - began, 0.001)
        try:
            result = await self.commit.txn(compares, ops, timeout=left)
        except LeaseNotFound as error:
            raise Refusal("SESSION_EXPIRED", "The session has ended: its lease is gone.") from error
        except Unavailable as error:
            if not error.ambiguous:
                raise EngineUnavailable(f"etcd did not take the write: {error}") from error
            await self._confirm(decisions[0][0].name, deadline)  # it may have been applied: look before deciding again
            return None
        except EtcdError as error:
            raise EngineUnavailable(f"etcd refused the write: {error}") from error
        self.latency.add(self.clock() - began)
        if result.succeeded:
            for view, decision in decisions:
                if not decision.remove_group:
                    self._floors[view.name] = max(self._floors.get(view.name, 0), result.revision)
                about = {"group": view.name, "revision": result.revision}
                afterwards(log, "%s", decision.why, extra=about)
            return result.revision
        groups = ", ".join(view.name for view, _ in decisions)
        log.info("A decision lost a guard: something has changed since it was made.", extra={"group": groups})
        await self._reached(result.revision, deadline)
        return None

    async def _newest(self, group: str, deadline: float) -> GroupView:
        await self._reached(self._floors.get(group, 0), deadline)
        error = self.picture.group_error(group)
        if error is not None:
            raise error
        return self.picture.group(group) or GroupView(name=group, revision=self.picture.revision)

    async def _confirm(self, group: str, deadline: float) -> bool:
        """Wait until the view is as new as etcd is now."""
        try:
            async with asyncio.timeout(max(deadline - self.clock(), 0.001)):
                revision = (await self.client.get_prefix(self.keys.turn(group), limit=1)).revision
        except (TimeoutError, EtcdError) as error:
            raise EngineUnavailable(f"etcd does not answer: {error}") from error
        await self._reached(revision, deadline)
        return True

    async def _reached(self, revision: int, deadline: float) -> None:
        if self.picture.revision >= revision:
            return
        try:
            await self.view.reached(revision, max(deadline - self.clock(), 0.001))
        except TimeoutError as error:
            if self.view.live:
                raise Conflict("the request was not carried out in the time allowed") from error
            raise EngineBehind("this replica's view of etcd is not live") from error

    # ------------------------------------------------------------------------------------------------ what follows

    def ahead(self, name: str) -> dict[str, int]:
        """The replicas that are to act on a group or session of this name before this one does.

        Returns:
            The create revision of each one's registration.
        """
        replicas = serving(self.picture.replicas())
        if replicas.keys() <= {self.replica_id}:
            return {}
        last = self.distrust.now(replicas.items())
        return {one: replicas[one] for one in before(self.replica_id, replicas, name, last)}

    def floor(self, group: str) -> int:
        """The revision of this replica's last write to the group: it decides on nothing older (protocol rule 33)."""
        return _TO_COME if group in self._turning else self._floors.get(group, 0)

    def subscribe(self, callback: Callable[[frozenset[str]], None]) -> Callable[[], None]:
        """Be told the names of groups that have changed, after the picture has. Returns how to end it."""
        self._listeners.add(callback)
        return lambda: self._listeners.discard(callback)

    def subscribe_sessions(self, callback: Callable[[frozenset[str]], None]) -> Callable[[], None]:
        """Be told of every change, and the sessions that it is about. Returns how to end it."""
        self._sessions_listeners.add(callback)
        return lambda: self._sessions_listeners.discard(callback)

    def subscribe_session(self, session: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Be told when something of a session has changed: its key, or one of its tickets. Returns how to end it."""
        self._session_listeners[session].add(callback)

        def end() -> None:
            callbacks = self._session_listeners.get(session)
            if callbacks is not None:
                callbacks.discard(callback)
                if not callbacks:
                    del self._session_listeners[session]

        return end

    def _changed(self, changes: Changes) -> None:
        groups, sessions = self.picture.take(changes)
        if changes.restarted:
            self._floors.clear()
        for group in groups:
            if self._known(group):
                self._worker(group).wake()
            elif group in self._workers:
                self._floors.pop(group, None)
                self._workers.pop(group).stop()
        for callback in tuple(self._listeners) if groups else ():
            callback(groups)
        for callback in tuple(self._sessions_listeners):
            callback(sessions)
        for session in sessions:
            for told in tuple(self._session_listeners.get(session, ())):
                told()

    def _known(self, group: str) -> bool:
        return self.picture.spec(group) is not None or self.picture.turn(group) is not None

    def _worker(self, group: str) -> GroupWorker:
        worker = self._workers.get(group)
        if worker is None:
            worker = self._workers[group] = GroupWorker(self, group)
            if self._closing:
                worker.stop()
        return worker


_TO_COME = 2**63
"""No revision, but later than all."""


def _of_all(
    views: Sequence[GroupView], ask: Callable[[GroupView], Decision | Nothing]
) -> list[tuple[GroupView, Decision]]:
    """What is to be done in each of the groups; nothing at all where all of it is done already. Raises Refusal."""
    answers = [(view, ask(view)) for view in views]
    decisions = [(view, answer) for view, answer in answers if isinstance(answer, Decision)]
    if decisions and len(decisions) < len(answers):
        gone = ", ".join(view.name for view, _ in decisions)
        raise Refusal("EVICTED", f"What was asked of several groups together has been undone in {gone}.")
    return decisions
