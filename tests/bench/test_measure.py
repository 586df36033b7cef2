# SPDX-License-Identifier: Apache-2.0
"""Samples are taken fairly and told rightly."""

from __future__ import annotations

import random

import pytest

from bench.measure import Case, Sample, interleave, median_error, noise, percentile, summarise


def test_each_case_is_taken_once_a_round_in_a_new_order_and_the_warm_up_does_not_count() -> None:
    order: list[str] = []

    def case(name: str) -> Case:
        def take() -> Sample:
            order.append(name)
            return Sample(float(len(order)))

        return Case(name, take)

    taken = interleave([case(name) for name in "abc"], 40, warm_up=2, rng=random.Random(7))
    rounds = ["".join(order[i : i + 3]) for i in range(0, len(order), 3)]
    assert len(rounds) == 42
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len(set(rounds)) > 3
    assert {name: len(samples) for name, samples in taken.items()} == {"a": 40, "b": 40, "c": 40}
    assert min(one.seconds for samples in taken.values() for one in samples) == 7.0  # six were warm-up


def test_a_drift_of_the_machine_is_in_all_cases_alike() -> None:
    """What is interleaved is slowed down together, so that the ratio is that of the things themselves."""
    clock = iter(range(10_000))

    def slower_and_slower(factor: float) -> Case:
        return Case(str(factor), lambda: Sample(factor * (1000 + next(clock))))

    taken = interleave([slower_and_slower(1.0), slower_and_slower(2.0)], 500, warm_up=0, rng=random.Random(7))
    assert summarise(taken["2.0"]).p50 / summarise(taken["1.0"]).p50 == pytest.approx(2.0, rel=0.01)


def test_the_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.99) == 4.0
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 3.0


def test_a_summary_has_the_middle_the_tail_and_the_revisions() -> None:
    found = summarise([Sample(float(n), n % 2 + 5) for n in range(1, 102)])
    assert (found.count, found.p50, found.p99, found.revisions) == (101, 51.0, 100.0, 6)


def test_nothing_measured_is_no_figure() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        summarise([])


def test_the_error_of_the_median_is_about_what_it_is_for_a_bell_curve() -> None:
    """There it is 1.253 times the standard deviation, over the root of the count."""
    rng = random.Random(7)
    errors = [median_error([rng.gauss(10.0, 2.0) for _ in range(400)]) for _ in range(200)]
    assert sum(errors) / len(errors) == pytest.approx(1.253 * 2.0 / 20, rel=0.15)


def test_noise_is_how_far_two_of_the_same_are_apart_whichever_is_larger() -> None:
    low, high = summarise([Sample(1.0)]), summarise([Sample(1.25)])
    assert noise(low, high) == noise(high, low) == 0.25
