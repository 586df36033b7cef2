# SPDX-License-Identifier: Apache-2.0
"""Which replica to try next, and after how long; and whether what answers is one."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tsclient.errors import TimesliceError

FIRST_DELAY = 0.05  # s
MAX_DELAY = 1.0  # s; a session's TTL may be as short as 2 s, and a resume has to fit in


REFUSALS = frozenset({"INVALID_ARGUMENT", "UNIMPLEMENTED", "UNAUTHENTICATED", "PERMISSION_DENIED"})
"""Codes that no other replica would answer differently."""


def no_coordinator(error: TimesliceError) -> bool:
    """Whether it is the refusal of something else: a service that has the port of a dead replica, a gateway."""
    return error.code in REFUSALS and error.reason == TimesliceError.reason


class Rotation:
    """Goes round the endpoints: after a stream has ended the others come first.

    The first attempt after a stream that worked is at once, later ones wait, twice as long each time, with full
    jitter so that the clients of a dead replica do not come to the next one together.
    """

    def __init__(self, endpoints: Sequence[str], rng: random.Random) -> None:
        if not endpoints:
            raise ValueError("no endpoints")
        self._rng = rng
        self._endpoints = list(endpoints)
        rng.shuffle(self._endpoints)
        self._at = -1
        self._failures = 0
        self._others = 0

    def next(self) -> tuple[str, float]:
        """The endpoint to try, and the seconds to wait before."""
        self._at = (self._at + 1) % len(self._endpoints)
        delay = 0.0
        if self._failures:
            delay = self._rng.uniform(0, min(MAX_DELAY, FIRST_DELAY * 2 ** min(self._failures, 10)))
        self._failures += 1
        return self._endpoints[self._at], delay

    def worked(self) -> None:
        """The last one answered."""
        self._failures = 0

    def ended(self, error: TimesliceError) -> bool:
        """The last one's stream has ended by this. Whether no coordinator is at any of the endpoints, in one round."""
        self._others = self._others + 1 if no_coordinator(error) else 0
        return self._others >= len(self._endpoints)
