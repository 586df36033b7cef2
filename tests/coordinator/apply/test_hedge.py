# SPDX-License-Identifier: Apache-2.0
"""Who goes first: spread over groups, stable when a replica goes, last for who was passed over."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from coordinator.apply.hedge import DISTRUST, LEAST_STEP, MOST_STEP, RECENT, Distrust, HoldBack, Latency, rank, serving
from ledger.kept import Kept
from ledger.records import Replica

REPLICAS = ("r0", "r1", "r2")


def order(group: str, replicas: tuple[str, ...] = REPLICAS, last: frozenset[str] = frozenset()) -> list[str]:
    return sorted(replicas, key=lambda one: rank(one, replicas, group, last))


def test_every_replica_comes_to_the_same_order_and_groups_are_spread() -> None:
    firsts = Counter(order(f"g{number}")[0] for number in range(300))
    assert set(firsts) == set(REPLICAS)
    assert min(firsts.values()) > 60
    for number in range(50):
        assert [rank(one, REPLICAS, f"g{number}") for one in order(f"g{number}")] == [0, 1, 2]


def test_a_replica_that_goes_moves_only_its_own_groups() -> None:
    for number in range(100):
        before = order(f"g{number}")
        left = tuple(one for one in REPLICAS if one != "r1")
        assert order(f"g{number}", left) == [one for one in before if one != "r1"]


def test_a_replica_that_does_not_see_its_own_registration_yet_counts_itself() -> None:
    assert rank("new", (), "g") == 0


def test_who_was_passed_over_ranks_last_until_it_registers_anew_or_time_has_passed() -> None:
    now = 100.0
    distrust = Distrust(lambda: now)
    first = order("g")[0]
    distrust.add(first, registration=7)
    last = distrust.now([(one, 7) for one in REPLICAS])
    assert order("g", last=last)[-1] == first
    assert distrust.now([(one, 8) for one in REPLICAS]) == frozenset()
    distrust.add(first, registration=8)
    now += DISTRUST + 1
    assert distrust.now([(one, 8) for one in REPLICAS]) == frozenset()


def test_of_two_registrations_with_one_address_only_the_newer_ranks() -> None:
    registered = {
        name: Kept(name, Replica(address=address), create=create, mod=create)
        for name, address, create in (("dead", "a:1", 5), ("other", "b:1", 6), ("anew", "a:1", 9))
    }
    assert serving(registered) == {"other": 6, "anew": 9}
    assert serving(dict(reversed(registered.items()))) == {"other": 6, "anew": 9}


def test_holding_back_grows_with_rank_and_with_the_store_s_own_slowness() -> None:
    latency = Latency(lambda: 100.0)
    assert latency.hold_back(0, Random(1)) == 0
    assert LEAST_STEP <= latency.hold_back(1, Random(1)) <= LEAST_STEP * 1.2
    for _ in range(100):
        latency.add(0.05)
    assert 0.2 <= latency.hold_back(1, Random(1)) <= 0.2 * 1.2
    assert 0.4 <= latency.hold_back(2, Random(1)) <= 0.4 * 1.2


def test_some_slow_transactions_do_not_put_off_who_acts_for_another_and_are_forgotten() -> None:
    now = 100.0
    latency = Latency(lambda: now)
    for seconds in (*[0.001] * 126, 8.0, 8.0):
        latency.add(seconds)
    assert MOST_STEP <= latency.hold_back(1, Random(1)) <= MOST_STEP * 1.2
    now += RECENT - 1
    latency.add(0.001)
    assert latency.hold_back(1, Random(1)) >= MOST_STEP
    now += 2
    assert latency.p99() == 0.001
    assert latency.hold_back(1, Random(1)) <= LEAST_STEP * 1.2


def test_holding_back_ends_whatever_else_changes_and_begins_anew_with_the_next_turn() -> None:
    hold_back = HoldBack()
    assert hold_back.left(7, now=100.0, seconds=0.1) == pytest.approx(0.1)
    # Looked at again and again, as waiters come and go: the time goes on.
    assert hold_back.left(7, now=100.06, seconds=0.1) == pytest.approx(0.04)
    assert hold_back.left(7, now=100.2, seconds=0.1) == 0
    assert hold_back.left(8, now=100.2, seconds=0.1) == pytest.approx(0.1)
    hold_back.end()
    assert hold_back.left(8, now=100.4, seconds=0.1) == pytest.approx(0.1)
