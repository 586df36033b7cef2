# SPDX-License-Identifier: Apache-2.0
"""What jobs could get at best, and where the time went."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from bench.ideal import duty
from bench.parts.duty import Shape, Split, bound, split
from bench.settings import QUICK


def _always(idle: float, busy: float) -> Iterator[tuple[float, float]]:
    return itertools.repeat((idle, busy))


def test_one_job_gets_its_busy_share_and_never_waits_for_a_switch_again() -> None:
    assert duty([_always(3.0, 1.0)], 0.5, 40.0, 440.0) == pytest.approx(0.25, abs=0.01)


def test_two_jobs_that_fit_beside_each_other_get_both_shares() -> None:
    """Each is idle for so long that the other's turn and both switches fit in: a cycle of 1 + 3 + 0.2 s for both."""
    assert duty([_always(3.0, 1.0)] * 1 + [_always(3.0, 1.0)], 0.2, 40.0, 440.0) == pytest.approx(2 / 4.2, abs=0.01)


def test_devices_that_are_always_wanted_lose_only_the_switches() -> None:
    assert duty([_always(0.5, 1.0) for _ in range(4)], 0.25, 40.0, 440.0) == pytest.approx(0.8, abs=0.01)


def test_the_same_phases_are_drawn_for_the_bound_as_by_the_jobs() -> None:
    fixed, varied = (bound(Shape(2, 0.4, varied), QUICK) for varied in (False, True))
    assert varied < fixed < 0.8


def test_each_moment_counts_once_as_the_first_thing_that_it_is() -> None:
    kernels, turns, switches = [(0, 10), (20, 30)], [(0, 35)], [(33, 50), (90, 120)]
    assert split(kernels, turns, switches, 0, 100) == Split(busy=0.20, held=0.15, switch=0.25, unheld=0.40)
