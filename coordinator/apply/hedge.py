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

MOST_STEP = 0.25
"""Seconds for each rank, at most: a killed replica is to cost less than 500 ms, and what follows it needs some too.

Who acts too early loses a guard, which is one transaction; who acts too late keeps a group waiting. So whatever makes
the store slow for a moment, a bad disk or a partition that has healed, may not put a group off for longer than this.
"""

RECENT = 30.0
"""Seconds for which a transaction's duration counts."""

DISTRUST = 30.0
"""Seconds for which a replica that was passed over ranks last, unless it registers anew before."""


def before(replica: str, replicas: Iterable[str], name: str, last: frozenset[str] = frozenset()) -> list[str]:
    """Those of ``replicas`` that come before ``replica`` for a group or session of this name: rendezvous hashing, so
    that names are spread and a replica that goes moves only its own. Those in ``last`` come after all others."""
    order = sorted({*replicas, replica}, key=lambda one: (one in last, _weight(one, name)))
    return order[: order.index(replica)]


def rank(replica: str, replicas: Iterable[str], name: str, last: frozenset[str] = frozenset()) -> int:
    """The place of ``replica``, from 0: how many come `before` it."""
    return len(before(replica, replicas, name, last))


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


def _weight(replica: str, name: str) -> bytes:
    return hashlib.blake2b(f"{replica}\0{name}".encode(), digest_size=8).digest()


class Latency:
    """The durations of the last ``size`` transactions, in seconds; of those not older than `RECENT`."""

    def __init__(self, clock: Callable[[], float], size: int = 128) -> None:
        self._clock = clock
        self._recent: deque[tuple[float, float]] = deque(maxlen=size)  # when it ended, how long it took

    def add(self, seconds: float) -> None:
        self._recent.append((self._clock(), seconds))

    def p99(self) -> float:
        oldest = self._clock() - RECENT
        while self._recent and self._recent[0][0] < oldest:
            self._recent.popleft()
        if not self._recent:
            return 0.0
        ordered = sorted(took for _, took in self._recent)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]

    def hold_back(self, place: int, random: Random) -> float:
        """Seconds that the replica of this rank waits before it acts in another's stead."""
        step = min(max(LEAST_STEP, 4 * self.p99()), MOST_STEP)
        return place * step * random.uniform(1.0, 1.2) if place else 0.0


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
