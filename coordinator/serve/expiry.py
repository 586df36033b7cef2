# SPDX-License-Identifier: Apache-2.0
"""Sessions that end on time (protocol rule 30).

etcd gives every lease its whole TTL anew when its leader changes, so leases alone let a dead holder keep its turn for
as long as leaders keep changing. So the replica that serves a session, and is named in its key, ends it itself: one TTL
after the last beat that it received. A client cannot believe for longer, since it counts from when it sent that beat.

If the replica that is named is gone, each that lives counts the TTL from when it saw that, unless the client resumes;
the first-ranked ends the session, and the others hold back by their rank, as with a group's turn. Who ranks first but
has died too, or stands still, costs that much and no second TTL. Every end compares the session's key: a client that
has gone on elsewhere keeps its session.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from dataclasses import dataclass

from coordinator.apply.engine import Engine
from coordinator.serve import validate
from ledger.etcd.errors import EtcdError
from ledger.etcd.txn import Compare, Delete, Get, absent, modified_at
from ledger.failpoint import hit
from ledger.kept import Kept
from ledger.records import Session

log = logging.getLogger(__name__)

PAUSE = 0.5
"""Seconds before an end that etcd did not take is tried again."""

AT_ONCE = 32
"""Sessions that are ended side by side."""


@dataclass(slots=True)
class _Charge:
    """A session that this replica is to end: its key as it was, and since when nothing was heard.

    ``breaks``: those of the view when that began. ``held_back``: seconds for which it is left to others after that.
    """

    session: str
    mod: int
    served_by: str
    ttl: float
    since: float
    breaks: int
    held_back: float = 0.0
    at: float = 0.0  # when it is to be looked at next, which is no later than when it is due

    @property
    def due(self) -> float:
        return self.since + self.ttl + self.held_back


class Expiry:
    """Ends the sessions of clients that have gone silent."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._charges: dict[str, _Charge] = {}
        self._ending: dict[str, _Charge] = {}  # whose time was over: to be brought to an end, whatever the view shows
        self._heap: list[tuple[float, str]] = []
        self._replicas = frozenset[str]()
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe = engine.subscribe_sessions(self._changed)

    def start(self) -> None:
        self._changed(frozenset(self._engine.picture.session_names()))
        self._task = asyncio.create_task(self._run(), name="sessions that end")

    async def close(self) -> None:
        self._unsubscribe()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def heard(self, session: str) -> None:
        """A beat has arrived from the session's client."""
        charge = self._charges.get(session)
        if charge is not None and charge.served_by == self._engine.replica_id:
            charge.since = self._engine.clock()

    # ------------------------------------------------------------------------------------------------ whose they are

    def _changed(self, sessions: frozenset[str]) -> None:
        picture = self._engine.picture
        replicas = frozenset(picture.replicas())
        if replicas != self._replicas:
            self._replicas, sessions = replicas, frozenset(picture.session_names())
        for session in sessions:
            self._look(session, picture.session(session))

    def _look(self, session: str, kept: Kept[Session] | None) -> None:
        if kept is None or not self._is_ours(kept):
            self._charges.pop(session, None)
            return
        charge = self._charges.get(session)
        if charge is not None and charge.mod == kept.mod:
            return
        ttl, served_by = kept.value.ttl_ms / 1000, kept.value.replica
        now, breaks = self._engine.clock(), self._engine.view.breaks
        charge = self._charges[session] = _Charge(session, kept.mod, served_by, ttl, now, breaks)
        self._at(charge, charge.due)

    def _is_ours(self, kept: Kept[Session]) -> bool:
        return kept.value.replica == self._engine.replica_id or kept.value.replica not in self._replicas

    # ------------------------------------------------------------------------------------------------ ending them

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            due = self._due()
            if due:
                await asyncio.gather(*(self._end(charge) for charge in due))
                continue
            left = self._heap[0][0] - self._engine.clock() if self._heap else None
            try:
                async with asyncio.timeout(left):
                    await self._woken.wait()
            except TimeoutError:
                continue

    def _due(self) -> list[_Charge]:
        """The sessions whose time is over."""
        found: list[_Charge] = []
        now = self._engine.clock()
        while self._heap and self._heap[0][0] <= now and len(found) < AT_ONCE:
            at, session = heapq.heappop(self._heap)
            charge = self._ending.get(session) or self._charges.get(session)
            if charge is None or charge.at != at:
                continue
            if session not in self._ending:
                if charge.served_by != self._engine.replica_id:
                    self._leave_to_others(charge, now)
                if charge.due > now:
                    self._at(charge, charge.due)
                    continue
                self._ending[session] = self._charges.pop(session)
            found.append(charge)
        return found

    def _leave_to_others(self, charge: _Charge, now: float) -> None:
        """Put off the end of a session whose replica is gone, where it is not this one's turn yet to end it."""
        engine = self._engine
        if self._unsure(charge):
            charge.since, charge.breaks, charge.held_back = now, engine.view.breaks, 0.0
        elif not charge.held_back:
            charge.held_back = engine.latency.hold_back(len(engine.ahead(charge.session)), engine.random)

    def _unsure(self, charge: _Charge) -> bool:
        """Whether the replica that is gone may have been there in between: then the count begins anew (rule 24)."""
        view = self._engine.view
        return not view.live or view.breaks != charge.breaks

    def _at(self, charge: _Charge, when: float) -> None:
        charge.at = when
        heapq.heappush(self._heap, (when, charge.session))
        if self._heap[0][1] == charge.session:
            self._woken.set()

    async def _end(self, charge: _Charge) -> None:
        """Delete the key under its guard; then nobody can go on with the session, and its lease may go."""
        engine = self._engine
        hit("replica.session.due")
        key = engine.keys.session(charge.session)
        guards: list[Compare] = [modified_at(key, charge.mod)]
        if charge.served_by != engine.replica_id:
            guards.append(absent(engine.keys.replica(charge.served_by)))
        try:
            done = await engine.client.txn(guards, [Delete(key)], [Get(key)], idempotent=True)
            hit("replica.session.deleted")
            if done.succeeded or not getattr(done.responses[0], "kvs", ()):
                await engine.client.revoke(validate.lease_of(charge.session))
                hit("replica.session.expired")
                log.info("Session %s has ended: nothing was heard of it for %g s.", charge.session, charge.ttl)
        except EtcdError as error:
            log.warning("Session %s is not ended yet: %s", charge.session, error)
            self._at(charge, engine.clock() + PAUSE * engine.random.uniform(0.5, 1.5))
        else:
            del self._ending[charge.session]
