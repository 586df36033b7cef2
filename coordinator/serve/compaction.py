# SPDX-License-Identifier: Apache-2.0
"""Somebody compacts etcd's history (protocol rule 31): each replica tries, and one of them does it at a time.

The key ``compaction`` holds a revision. Who has seen that key unchanged for the time that history is kept notes a newer
revision in its place, and compacts at the one that was there, which is at least as old. The write compares the key, so
that of several replicas one goes on; the time is each replica's own (rule 24). A replica that dies in between leaves a
compaction out, and the next one makes up for it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from coordinator.apply.engine import Engine
from ledger.codec import encode
from ledger.etcd.errors import EtcdError
from ledger.etcd.txn import Put, absent, modified_at
from ledger.kept import Kept
from ledger.records import Compaction

log = logging.getLogger(__name__)

KEEP_LEAST = 300.0
"""Seconds of history that are kept at least: a watch that was cut off goes on from where it was."""

PAUSE = 1.0
"""Seconds until what etcd did not take, or a view that is not live, is tried again."""


@dataclass(frozen=True, slots=True)
class _Sight:
    mod: int
    since: float


class Compactor:
    """One replica's share in keeping etcd's history short. ``keep``: seconds of it that are kept."""

    def __init__(self, engine: Engine, keep: float = KEEP_LEAST) -> None:
        self._engine = engine
        self._keep = keep
        self._sight = _Sight(-1, 0.0)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="compaction")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            pause = await self._round()
            await asyncio.sleep(pause)

    async def _round(self) -> float:
        """Compact if it is time. Returns the seconds until the next look."""
        engine = self._engine
        if not engine.view.live or engine.picture.revision < 1:
            return PAUSE
        kept, now = engine.picture.compaction(), engine.clock()
        mod = kept.mod if kept else 0
        if mod != self._sight.mod:
            self._sight = _Sight(mod, now)
        left = self._keep - (now - self._sight.since)
        if kept is not None and left > 0:
            return left * engine.random.uniform(1.0, 1.1)
        try:
            await self._note(kept)
        except EtcdError as error:
            log.warning("The history of etcd is not compacted yet: %s", error)
            return PAUSE
        return self._keep

    async def _note(self, kept: Kept[Compaction] | None) -> None:
        """Note how far the store has come; whoever does so compacts at what was noted before."""
        engine, key = self._engine, self._engine.keys.compaction()
        noted = Compaction(revision=engine.picture.revision, replica=engine.replica_id)
        guard = modified_at(key, kept.mod) if kept else absent(key)
        done = await engine.client.txn([guard], [Put(key, encode(noted))])
        if done.succeeded and kept is not None:
            await engine.client.compact(kept.value.revision)
            log.info("The history of etcd before revision %d is compacted.", kept.value.revision)
