# SPDX-License-Identifier: Apache-2.0
"""Hand-offs, and what a fault adds to them: pure functions over what jobs have reported."""

from __future__ import annotations

import pytest

from chaos.dev.lines import Yielded
from chaos.scenarios.handoffs import Delays, HandOff, hand_offs, percentile

_MS = 1_000_000


def turn(token: int, asked: int, granted: int, yielding: int) -> Yielded:
    """Times in ms."""
    return Yielded(yielding * _MS + 1, token, asked * _MS, granted * _MS, 1, True, yielding * _MS)


def test_a_hand_off_begins_with_the_yield_or_with_the_one_who_asks_later() -> None:
    jobs = {
        "a": [turn(1, 0, 0, 100), turn(9, 300, 350, 400)],
        "b": [turn(5, 50, 120, 200), turn(7, 210, 215, 220)],
    }
    found = hand_offs(jobs)
    assert [(one.job, one.token, round(one.took * 1000)) for one in found] == [("b", 5, 20), ("a", 9, 50)]


def test_what_was_under_way_at_any_time_of_a_fault_is_touched() -> None:
    one = HandOff(10, 20, 1, "a")
    assert [one.touches(*span) for span in ((0, 11), (19, 30), (12, 13), (0, 10), (20, 30))] == [True] * 3 + [False] * 2


def test_what_is_added_is_above_the_median_of_those_left_alone() -> None:
    quiet = [HandOff(0, took * _MS, 1, "a") for took in (100, 120, 500)]
    struck = [HandOff(0, took * _MS, 1, "a") for took in (90, 150, 400)]
    assert Delays.of(quiet, struck).added == pytest.approx((0.0, 0.03, 0.28))


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(one) for one in range(1, 201)]
    assert (percentile(values, 50), percentile(values, 99), percentile(values, 100)) == (100, 198, 200)
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
