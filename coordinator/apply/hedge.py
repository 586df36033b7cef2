# SPDX-License-Identifier: Apache-2.0
"""Which replica acts first, and how long the others hold back. Any of them may act: this only spares conflicts."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from random import Random

from ledger.kept import Kept
from ledger.records import Replica

LEAST_STEP = 0.1
"""Seconds for each rank, at least."""

DISTRUST = 30.0
"""Seconds for which a replica that was passed over ranks last, unless it registers anew before."""


def rank(replica: str, replicas: Iterable[str], group: str, last: frozenset[str] = frozenset()) -> int:
    """The place of ``replica`` among ``replicas`` for ``group``: rendezvous hashing, so that groups are spread and a
    replica that goes moves only its own. Those in ``last`` come after all others."""
    order = sorted({*replicas, replica}, key=lambda one: (one in last, _weight(one, group)))
    return order.index(replica)


def serving(replicas: Mapping[str, Kept[Replica]]) -> dict[str, int]:
    """The create revision of each registration; of those with one address of the newest alone.

    Who serves at an address has the place of whoever did before: that one has died, although its registration lasts for
    as long as its lease, and every step would wait for it until then.
    """
    newest: dict[str, Kept[Replica]] = {}
    for kept in replicas.values():
        there = newest.get(kept.value.address or kept.name)
        if there is None or kept.create > there.create:
            newest[kept.value.address or kept.name] = kept
    return {kept.name: kept.create for kept in newest.values()}


def _weight(replica: str, group: str) -> bytes:
    return hashlib.blake2b(f"{replica}\0{group}".encode(), digest_size=8).digest()


class Latency:
    """The recent durations of transactions, in seconds."""

    def __init__(self, size: int = 128) -> None:
        self._recent: deque[float] = deque(maxlen=size)

    def add(self, seconds: float) -> None:
        self._recent.append(seconds)

    def p99(self) -> float:
        if not self._recent:
            return 0.0
        ordered = sorted(self._recent)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]

    def hold_back(self, place: int, random: Random) -> float:
        """Seconds that the replica of this rank waits before it acts in another's stead."""
        return place * max(LEAST_STEP, 4 * self.p99()) * random.uniform(1.0, 1.2) if place else 0.0


class Distrust:
    """The replicas that were passed over: each ranks last until it registers anew, or `DISTRUST` has passed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[tuple[str, int], float] = {}

    def add(self, replica: str, registration: int) -> None:
        """``registration`` is the create revision of its key: which life of it was passed over."""
        self._since[replica, registration] = self._clock()

    def now(self, registrations: Iterable[tuple[str, int]]) -> frozenset[str]:
        current = set(registrations)
        oldest = self._clock() - DISTRUST
        self._since = {one: since for one, since in self._since.items() if one in current and since > oldest}
        return frozenset(replica for replica, _ in self._since)


class HoldBack:
    """Since when a decision on one turn has been left to the replicas before this one.

    What else changes meanwhile does not count: waiters who come and go would put it off for ever.
    """

    def __init__(self) -> None:
        self._turn = -1
        self._until = 0.0

    def left(self, turn: int, now: float, seconds: float) -> float:
        """Seconds still to hold back on the turn of this mod revision, of ``seconds`` in all."""
        if self._turn != turn:
            self._turn, self._until = turn, now + seconds
        return max(self._until - now, 0.0)

    def end(self) -> None:
        """Nothing is to be decided any more."""
        self._turn = -1
