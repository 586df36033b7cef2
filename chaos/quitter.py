# SPDX-License-Identifier: Apache-2.0
"""A client that gives up in the middle of its own switch, so that the switch has to be taken back.

Without it a release is rare: nobody cancels, and nothing refuses. It has no process on the devices, so a switch to it
locks whoever is on them, and the release unlocks them again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import CancelledError
from random import Random
from types import TracebackType
from typing import Self

import tsclient as blocking
import tsclient.aio as ts
from chaos import background
from chaos.observer import Observer, Seen
from ledger.etcd import EtcdClient
from ledger.keys import Kind
from ledger.records import Phase

JOB = "quitter"
_CALL_SECONDS = 60.0
_TIMES = 20
"""Attempts, until it is said that no switch can be taken back."""


class Quitter:
    """``with Quitter(...) as quitter: quitter.release(within=60)``.

    Args:
        endpoints: of the coordinators.
        etcd: its members, to end the session as its expiry would.
        random: which of the two ways it takes: it cancels, or its session ends.
    """

    def __init__(
        self, endpoints: Sequence[str], etcd: Sequence[str], group: str, eyes: Observer, random: Random
    ) -> None:
        self._endpoints, self._etcd, self._group = tuple(endpoints), tuple(etcd), group
        self._eyes, self._random = eyes, random
        self._client: ts.Client | None = None

    def __enter__(self) -> Self:
        self._client = background.call(ts.connect(self._endpoints, JOB), _CALL_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._client is not None
        background.call(self._client.close(), _CALL_SECONDS)

    def release(self, within: float) -> Seen:
        """Bring a switch to RELEASING; returns when it is seen. Raises TimeoutError if that cannot be done.

        Giving up can come too late, when the switch has gone on to COMMITTING: then it is tried again.
        """
        for _ in range(_TIMES):
            came = self._once(within)
            if came.turn is not None and came.turn.phase is Phase.RELEASING:
                return came
        raise TimeoutError(f"in {_TIMES} attempts no switch was taken back")

    def _once(self, within: float) -> Seen:
        """Ask for a turn, give up while it is prepared; returns what came after PREPARING."""
        after = self._eyes.seen[-1].revision
        asking = background.begin(self._take_turn(within))
        try:
            prepared = self._eyes.wait_for(self._is_ours, within, after=after)
            if self._random.random() < 0.5:
                self._end_session()
            asking.cancel()
            return self._eyes.wait_for(self._is_further, within, after=prepared.revision)
        finally:
            asking.cancel()
            with contextlib.suppress(CancelledError, blocking.TimesliceError):
                asking.result(_CALL_SECONDS)

    async def _take_turn(self, within: float) -> None:
        assert self._client is not None
        async with self._client.accelerators(self._group, timeout=within):
            pass

    def _is_ours(self, one: Seen) -> bool:
        turn = one.turn
        return bool(turn and turn.phase is Phase.PREPARING and turn.incoming and turn.incoming.job == JOB)

    def _is_further(self, one: Seen) -> bool:
        return one.place.kind is Kind.TURN and bool(one.turn) and not self._is_ours(one)

    def _end_session(self) -> None:
        """End its lease in etcd, as if nothing had been heard of it for its TTL."""
        tickets = [one.ticket for one in self._eyes.seen if one.place.kind is Kind.TICKET and one.place.name == JOB]
        if tickets and tickets[-1] is not None:
            background.call(_revoke(self._etcd, int(tickets[-1].session, 16)), _CALL_SECONDS)


async def _revoke(etcd: Sequence[str], lease: int) -> None:
    async with EtcdClient(etcd) as client:
        await client.revoke(lease)
