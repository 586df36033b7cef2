# SPDX-License-Identifier: Apache-2.0
"""Measuring several things fairly: interleaved, warmed up, and told by median and 99th percentile. No input or output.

A machine's speed drifts by more than what is to be seen, so nothing is measured after the other: each round measures
every case once, in an order of its own, and ratios are taken between cases of the same run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median


class TooShort(Exception):
    """Nothing came to its end in the time that was measured."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement.

    Attributes:
        seconds: how long it took.
        revisions: by how much it moved etcd's revision on; None: not counted.
    """

    seconds: float
    revisions: int | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """Something that is measured once a round. Its name is that of its row in the table."""

    name: str
    take: Callable[[], Sample]


@dataclass(frozen=True, slots=True)
class Summary:
    """What many samples say, in seconds.

    Attributes:
        revisions: the median; None: not counted.
        error: of the median, as a standard error, from the spread of the samples' halves; see `median_error`.
    """

    count: int
    p50: float
    p99: float
    error: float
    revisions: float | None = None


def percentile(values: Sequence[float], part: float) -> float:
    """The smallest of ``values`` that at least ``part`` (0 to 1) of all are not above."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def median_error(values: Sequence[float]) -> float:
    """The standard error of the median, without any belief in a shape: from the order statistics about it.

    About 68 % of all samples would have their median between the values at n/2 ± √n/2 of the ordered sample
    (binomial distribution of ranks); half of that distance is the error. 0 for fewer than 4 values.
    """
    count = len(values)
    if count < 4:
        return 0.0
    ordered, half = sorted(values), count**0.5 / 2
    low, high = int(count / 2 - half), min(int(count / 2 + half), count - 1)
    return (ordered[high] - ordered[low]) / 2


def summarise(samples: Sequence[Sample]) -> Summary:
    """Raises ValueError where there is no sample."""
    if not samples:
        raise ValueError("nothing was measured")
    seconds = [one.seconds for one in samples]
    counted = [one.revisions for one in samples if one.revisions is not None]
    revisions = median(counted) if counted else None
    return Summary(len(samples), median(seconds), percentile(seconds, 0.99), median_error(seconds), revisions)


def interleave(
    cases: Sequence[Case],
    rounds: int,
    *,
    warm_up: int,
    rng: random.Random,
    told: Callable[[int], None] = lambda _: None,
) -> Mapping[str, Sequence[Sample]]:
    """Take each case once a round, each round in a new order.

    Args:
        warm_up: rounds before the first that counts.
        told: called with the number of each round that is done.
    """
    taken: dict[str, list[Sample]] = {case.name: [] for case in cases}
    for number in range(-warm_up, rounds):
        order = list(cases)
        rng.shuffle(order)
        for case in order:
            sample = case.take()
            if number >= 0:
                taken[case.name].append(sample)
        told(number + 1)
    return taken


def noise(first: Summary, second: Summary) -> float:
    """How far two measurements of the same thing are apart: the larger p50 over the smaller, less 1."""
    low, high = sorted((first.p50, second.p50))
    return high / low - 1.0
