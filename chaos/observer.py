# SPDX-License-Identifier: Apache-2.0
"""A live eye on the groups in etcd: turns and tickets as they are written, to wait for and to judge afterwards.

The history (`chaos.history`) is the file that stays; this is for a scenario that has to act at a certain moment, and
for what concerns tickets. It watches in the background.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from chaos import background
from ledger.codec import decode
from ledger.etcd import EtcdClient, EventType, KeyValue
from ledger.keys import Keys, Kind, Place
from ledger.records import Ticket, Turn

_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A turn or a ticket as written at ``revision``; seen at ``mono`` (ns of CLOCK_MONOTONIC). None: deleted.

    Attributes:
        create: the key's create revision: a ticket's place. 0 for a deletion.
    """

    revision: int
    mono: int
    place: Place
    create: int
    value: Turn | Ticket | None

    @property
    def turn(self) -> Turn | None:
        return self.value if isinstance(self.value, Turn) else None

    @property
    def ticket(self) -> Ticket | None:
        return self.value if isinstance(self.value, Ticket) else None


class Observer:
    """``with Observer(endpoints, keys) as eyes``: sees everything under ``groups/`` from the beginning on.

    Every call raises what ended the watch, if it has ended: an observer with a hole in what it saw is none.
    """

    def __init__(self, endpoints: Sequence[str], keys: Keys) -> None:
        self._endpoints, self._keys = tuple(endpoints), keys
        self._changed = threading.Condition()
        self._seen: list[Seen] = []
        self._started = False
        self._error: Exception | None = None
        self._watching: Future[None] | None = None

    def __enter__(self) -> Self:
        self._watching = background.begin(self._watch())
        with self._changed:
            if not self._changed.wait_for(lambda: self._started or self._error, _START_SECONDS):
                raise TimeoutError("etcd did not answer the observer")
            self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._watching is not None
        self._watching.cancel()

    @property
    def seen(self) -> tuple[Seen, ...]:
        """All so far, in the order of their revisions."""
        with self._changed:
            self._check()
            return tuple(self._seen)

    def turn(self, group: str, at: int | None = None) -> Turn | None:
        """The turn as it was seen last, or as it was known at ``at`` (ns of CLOCK_MONOTONIC)."""
        limit = time.monotonic_ns() if at is None else at
        known = [one for one in self.seen if one.place == Place(Kind.TURN, group=group) and one.mono <= limit]
        return known[-1].turn if known else None

    def wait_for(self, wanted: Callable[[Seen], bool], within: float, *, after: int = 0) -> Seen:
        """The first that is wanted, of those with a revision above ``after``; waits for it.

        Raises TimeoutError if there is none within so many seconds.
        """
        found: list[Seen] = []
        looked = 0

        def there() -> bool:
            nonlocal looked
            self._check()
            fresh, looked = self._seen[looked:], len(self._seen)
            found.extend(one for one in fresh if one.revision > after and wanted(one))
            return bool(found)

        with self._changed:
            if not self._changed.wait_for(there, within):
                raise TimeoutError(f"what was waited for was not written to etcd within {within:g} s")
        return found[0]

    # ------------------------------------------------------------------------------------------------ inside

    def _check(self) -> None:
        if self._error is not None:
            raise RuntimeError("the observer's watch has ended") from self._error

    async def _watch(self) -> None:
        try:
            await self._follow()
        except Exception as error:  # noqa: BLE001 - told to whoever asks the observer next
            with self._changed:
                self._error = error
                self._changed.notify_all()

    async def _follow(self) -> None:
        prefix = (self._keys.prefix + "groups/").encode()
        async with EtcdClient(self._endpoints) as client:
            listed = await client.get_prefix(prefix)
            self._take([(kv, False) for kv in sorted(listed.kvs, key=lambda kv: kv.mod_revision)])
            async with client.watch(prefix, listed.revision + 1, cluster_id=listed.header.cluster_id) as batches:
                with self._changed:
                    self._started = True
                    self._changed.notify_all()
                async for batch in batches:
                    self._take([(event.kv, event.type is not EventType.PUT) for event in batch.events])

    def _take(self, kvs: Sequence[tuple[KeyValue, bool]]) -> None:
        now = time.monotonic_ns()
        fresh = [one for kv, deleted in kvs if (one := self._one(kv, deleted, now)) is not None]
        with self._changed:
            self._seen.extend(fresh)
            self._changed.notify_all()

    def _one(self, kv: KeyValue, deleted: bool, now: int) -> Seen | None:
        place = self._keys.place(kv.key)
        if place is None or place.kind not in _RECORDS:
            return None
        value = None if deleted else decode(_RECORDS[place.kind], kv.value)
        return Seen(kv.mod_revision, now, place, kv.create_revision, value)


_RECORDS: dict[Kind, type[Turn | Ticket]] = {Kind.TURN: Turn, Kind.TICKET: Ticket}
