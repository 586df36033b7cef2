# SPDX-License-Identifier: Apache-2.0
"""The live view and the index of it, whatever becomes of their watch: changes that come late, breaks, compaction, lists
again, a store that is set back or replaced.

What must hold: at every moment the copy is what the store was at the copy's revision; revisions never fall but where
the store's did, which is said; who waits for a revision is woken when it is there and not before; and an index that has
taken in every change is the index of what is there.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import cast

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ledger.codec import encode
from ledger.etcd import EtcdClient, KeyValue
from ledger.etcd.errors import Unavailable
from ledger.etcd.txn import Delete, Op, Put
from ledger.index import Index
from ledger.keys import Keys
from ledger.records import Phase, Ticket, Turn
from ledger.view import Changes, LedgerView, Writing
from tests.property.fake_etcd import FakeClient, FakeStore
from tests.property.virtual_time import VirtualLoop

KEYS = Keys("/v")
RESYNC = 60.0
JOBS = ("a", "b", "c")
_VALUES = st.sampled_from([encode(Ticket(priority=0)), encode(Ticket(priority=1)), b"no record"])


class Views(RuleBasedStateMachine):
    """One view of one store."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.store = FakeStore()
        self.client = self.loop.work(self._client())
        self.index = Index(KEYS)
        self.copy: dict[bytes, KeyValue] = {}
        self.revision = 0
        self.broken = ""
        self.waiting: list[tuple[int, asyncio.Task[None]]] = []
        self.writes: list[Writing] = []
        self.view = LedgerView(cast(EtcdClient, self.client), KEYS.root, self._told, resync=RESYNC, random=Random(1))
        self.loop.work(self.view.start(10.0))

    async def _client(self) -> FakeClient:
        return FakeClient(self.store)

    def _told(self, changes: Changes) -> None:
        """What the view's listener sees, checked where it is seen: later it may be right again."""
        if changes.revision < self.revision and not changes.restarted:
            self.broken = f"revision {self.revision} became {changes.revision}"
        self.revision = changes.revision
        for change in changes.changes:
            if change.kv is None:
                self.copy.pop(change.key, None)
                self.index.delete(change.key)
            else:
                self.copy[change.key] = change.kv
                self.index.put(change.kv)
        was = self.store.states.get(changes.revision)
        if was is not None and self.copy != was:
            self.broken = f"at revision {changes.revision} it shows {sorted(self.copy)}, there was {sorted(was)}"

    # ------------------------------------------------------------ what is written

    @rule(job=st.sampled_from(JOBS), value=_VALUES)
    def put_ticket(self, job: str, value: bytes) -> None:
        self._write(Put(KEYS.ticket("g", job), value))

    @rule(job=st.sampled_from(JOBS), token=st.integers(1, 9))
    def put_turn_and_delete_ticket(self, job: str, token: int) -> None:
        """Two keys in one transaction."""
        turn = Turn(phase=Phase.HELD, token=token)
        self._write(Put(KEYS.turn("g"), encode(turn)), Delete(KEYS.ticket("g", job)))

    def _write(self, *ops: Op) -> None:
        self.store.txn((), ops)

    @rule()
    def somebody_begins_to_write_the_turn(self) -> None:
        self.writes.append(self.view.writing(KEYS.turn("g")).__enter__())

    @precondition(lambda self: self.writes)
    @rule(rests=st.booleans())
    def has_written_it(self, rests: bool) -> None:
        async def leave() -> None:
            write.__exit__(None, None, None)

        write = self.writes.pop(0)
        write.rests = rests
        self.loop.work(leave())
        self.loop.pass_time(0.0)

    # ------------------------------------------------------------ what befalls it

    @rule(seconds=st.sampled_from((0.0, 0.01, 1.0, 10.0, RESYNC)))
    def time_passes(self, seconds: float) -> None:
        self.loop.pass_time(seconds)

    @rule(ahead=st.sampled_from((0, 1, 2, None)))
    def the_watch_is_slow(self, ahead: int | None) -> None:
        self.client.ahead = ahead
        self.client.move()

    @rule()
    def the_watch_breaks(self) -> None:
        self.client.break_watches(Unavailable("the connection broke", ambiguous=False))

    @rule(away=st.booleans())
    def etcd_is_away(self, away: bool) -> None:
        self.client.cut(away)

    @rule()
    def compacted(self) -> None:
        self.store.compact()

    @precondition(lambda self: len(self.store.states) > 2)
    @rule(back=st.integers(1, 5), another=st.booleans())
    def restored(self, back: int, another: bool) -> None:
        """Etcd is down meanwhile. The same cluster, set back, is known by its revision alone, while that is lower."""
        self.loop.pass_time(1.0)  # the watch has brought what it is compared with: it waits for no answer any more
        revisions = sorted(self.store.states)
        self.store.restore(revisions[max(0, len(revisions) - 1 - back)], another_cluster=another)
        self.client.break_watches(Unavailable("the member went down", ambiguous=False))
        if not another:
            self.client.cut(False)
            self.loop.pass_time(10.0)

    @rule(later=st.integers(0, 2))
    def somebody_waits(self, later: int) -> None:
        revision = self.store.revision + later
        task = self.loop.create_task(self.view.reached(revision, 1e6))
        self.waiting.append((revision, task))
        self.loop.pass_time(0.0)

    # ------------------------------------------------------------ what must hold

    @invariant()
    def the_copy_was_the_store(self) -> None:
        assert not self.broken, self.broken

    @invariant()
    def who_waits_is_woken_in_time(self) -> None:
        self.waiting = [one for one in self.waiting if not self._woken(*one)]
        for revision, _ in self.waiting:
            assert revision > self.view.revision, f"revision {revision} is there, and one who waits for it is not told"

    def _woken(self, revision: int, task: asyncio.Task[None]) -> bool:
        self.loop.pass_time(0.0)
        if task.done():
            assert task.exception() is None
        return task.done()

    def teardown(self) -> None:
        self.client.ahead = None
        self.client.cut(False)
        self.loop.pass_time(10.0)
        assert self.view.live
        assert self.copy == self.store.kvs
        assert set(self.view.keys()) == set(self.store.kvs)
        afresh = Index(KEYS)
        for kv in self.store.kvs.values():
            afresh.put(kv)
        assert self.index.queue("g").in_order() == afresh.queue("g").in_order()
        assert self.index.turns == afresh.turns
        assert sorted(map(str, self.index.errors(group="g"))) == sorted(map(str, afresh.errors(group="g")))
        for _, task in self.waiting:
            task.cancel()
        self.loop.work(self.view.close())
        self.loop.close()


TestViews = Views.TestCase
TestViews.settings = settings(max_examples=200, stateful_step_count=40)
