# SPDX-License-Identifier: Apache-2.0
"""The benchmark measures what it says, from a real system."""

from __future__ import annotations

from contextlib import ExitStack

from bench.handoff import ALONE, BARE, EMPTY, TINY, Rig, Sample, percentile, table


def test_a_round_measures_each_kind_once_and_counts_revisions() -> None:
    with ExitStack() as stack:
        rig = Rig(members=1, replicas=1, stack=stack)
        rounds = [dict(rig.round()) for _ in range(2)]
    for found in rounds:
        assert list(found) == [BARE, ALONE, EMPTY, TINY]
        assert found[BARE].revisions == 1
        # Ticket and grant in one, then the yield.
        assert found[ALONE].revisions == 2
        # At the least: the yield, PREPARE, PREPARED, COMMIT, COMMITTED and the grant; and the ticket before it.
        assert found[EMPTY].revisions >= 6
        assert found[TINY].seconds > found[BARE].seconds


def test_ratios_are_to_the_bare_transaction_of_the_same_etcd() -> None:
    samples = {
        (1, BARE): [Sample(0.001, 1)],
        (1, ALONE): [Sample(0.003, 2)],
        (3, BARE): [Sample(0.002, 1)],
        (3, ALONE): [Sample(0.003, 2)],
    }
    rows = [line.split() for line in table(samples)][1:]
    assert [row[-3] for row in rows] == ["1.0", "3.0", "1.0", "1.5"]


def test_the_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.99) == 4.0
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 3.0
