# SPDX-License-Identifier: Apache-2.0
"""Hand-offs as their jobs saw them: from the moment when one could begin until the next job had its turn.

This is what a fault costs those who use the lock: the writes of the switch, and the word of it to the client. Pure
functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from chaos.dev.lines import Line, Yielded

_MS = 1_000.0


@dataclass(frozen=True, slots=True)
class HandOff:
    """One job's turn after another's. ``begin`` and ``end`` in ns of CLOCK_MONOTONIC.

    Attributes:
        begin: the holder began to yield, or the next asked, whichever came later.
        end: the next knew of its grant.
        token: of that grant.
    """

    begin: int
    end: int
    token: int
    job: str

    @property
    def took(self) -> float:
        """Seconds."""
        return (self.end - self.begin) / 1e9

    def touches(self, begin: int, end: int) -> bool:
        """Whether it was under way at any time between those (ns)."""
        return self.begin < end and begin < self.end


def hand_offs(jobs: Mapping[str, Sequence[Line]]) -> list[HandOff]:
    """Those from one job to another, in the order of their tokens; of turns that ended well alone."""
    turns = sorted(
        ((line, job) for job, lines in jobs.items() for line in lines if isinstance(line, Yielded)),
        key=lambda one: one[0].token,
    )
    return [
        HandOff(max(before.yielding, after.asked), after.granted, after.token, job)
        for (before, giver), (after, job) in pairwise(turns)
        if giver != job
    ]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least so many percent are not above (nearest rank). Raises ValueError without any."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(math.ceil(len(values) * percent / 100), 1) - 1]


@dataclass(frozen=True, slots=True)
class Delays:
    """Struck hand-offs beside the quiet ones of the same run. Seconds.

    Attributes:
        added: of each struck one, what is above the median of the quiet ones; below it: nothing.
    """

    quiet: tuple[float, ...]
    struck: tuple[float, ...]

    @classmethod
    def of(cls, quiet: Iterable[HandOff], struck: Iterable[HandOff]) -> Delays:
        return cls(tuple(one.took for one in quiet), tuple(one.took for one in struck))

    @property
    def added(self) -> tuple[float, ...]:
        usual = median(self.quiet) if self.quiet else 0.0
        return tuple(max(one - usual, 0.0) for one in self.struck)

    def facts(self, what: str) -> list[str]:
        """For people. ``what`` was done to the struck ones."""
        return [
            f"hand-offs left alone:       {percentiles(self.quiet)}",
            f"hand-offs with {what}: {percentiles(self.struck)}",
            f"added by {what}: {percentiles(self.added)}",
        ]


def percentiles(seconds: Sequence[float]) -> str:
    """Median, p99 and largest, for people."""
    if not seconds:
        return "none"
    half, most = median(seconds) * _MS, percentile(seconds, 99) * _MS
    return f"median {half:,.0f} ms, p99 {most:,.0f} ms, largest {max(seconds) * _MS:,.0f} ms, of {len(seconds)}"
