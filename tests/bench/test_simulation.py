# SPDX-License-Identifier: Apache-2.0
"""The model behaves as queues do, and takes its costs from a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.simulation.costs import Costs, CostsMissing, costs_from
from bench.simulation.model import simulate
from bench.simulation.sizes import Size, first_limit, loads, shards_for

_COSTS = Costs(
    replica=0.004, watcher=0.001, etcd=0.002, agent=0.003, beat_replica=0.0004, beat_etcd=0.0001, hand_off=0.020,
    waiter_bytes=40_000, writes=6,
)  # fmt: skip
_SMALL = Size(nodes=10, groups=100, sessions=1000, turn=10.0, switch=1.0)


def test_an_idle_system_hands_off_in_what_was_measured() -> None:
    found = simulate(replace(_SMALL, groups=1, sessions=2), _COSTS, seconds=2000.0, warm_up=10.0)
    assert found.p50 == pytest.approx(_COSTS.hand_off, rel=0.01)


def test_how_busy_each_part_is_agrees_with_the_arithmetic() -> None:
    found, wanted = simulate(_SMALL, _COSTS, seconds=400.0, warm_up=50.0), loads(_SMALL, _COSTS)
    assert found.etcd == pytest.approx(wanted["etcd"], rel=0.1)
    assert found.replica == pytest.approx(wanted["replica"], rel=0.15)
    assert found.kept_up > 0.98


def test_a_part_that_is_asked_for_more_than_it_can_do_falls_behind() -> None:
    slow = replace(_COSTS, replica=0.4)
    assert loads(_SMALL, slow)["replica"] > 1
    found = simulate(_SMALL, slow, seconds=60.0, warm_up=10.0)
    assert found.p99 > 10 * _COSTS.hand_off
    assert found.replica > 0.9


def test_the_first_limit_is_the_part_that_is_full_first_and_sharding_takes_it_away() -> None:
    whole = _SMALL.scaled(100)
    part, multiple = first_limit(whole, _COSTS)
    assert part == max(("replica", "etcd"), key=lambda name: loads(whole, _COSTS)[name])
    at = loads(replace(whole, groups=round(whole.groups * multiple), sessions=round(whole.sessions * multiple)), _COSTS)
    assert at[part] == pytest.approx(0.7, rel=0.01)
    shards = shards_for(whole, _COSTS)
    assert max(loads(whole.scaled(1 / shards), _COSTS).values()) <= 0.7
    assert max(loads(whole.scaled(1 / (shards - 1)), _COSTS).values()) > 0.7


def test_the_costs_are_those_of_the_largest_sizes_that_were_measured() -> None:
    figures = {"replica_cpu_ms": 4.0, "etcd_cpu_ms": 2.0, "agents_cpu_ms": 3.0, "revisions": 6}
    crowd = {"replica_cpu_ms_min": 1.2, "etcd_cpu_ms_min": 0.3, "replica_kb": 40.0}
    rows = [
        {"part": "d", "name": "hand-off", "figures": {"p50_ms": 20.0}},
        {"part": "d", "name": "hand-off, a process each", "figures": {"p50_ms": 50.0}},
        {"part": "f", "name": "system, 1 group", "figures": dict.fromkeys(figures, 99.0)},
        {"part": "f", "name": "system, 10 groups", "figures": figures},
        {"part": "f", "name": "floor, 10 groups", "figures": dict.fromkeys(figures, 1.0)},
        {"part": "g", "name": "10 waiters", "figures": dict.fromkeys(crowd, 99.0)},
        {"part": "g", "name": "1000 waiters", "figures": crowd},
        {"part": "h", "name": "1 replica", "figures": {"replicas_cpu_ms": 4.0}},
        {"part": "h", "name": "3 replicas", "figures": {"replicas_cpu_ms": 6.0}},
    ]
    settings = {"ttl": 60.0}
    others = {"rows": [row for row in rows if row["part"] == "g"], "settings": settings}
    first = {"rows": [row for row in rows if row["part"] != "g"], "settings": {"ttl": 1.0}}
    found = costs_from([first, others])
    assert (found.replica, found.watcher, found.etcd, found.agent) == (0.004, 0.001, 0.002, 0.003)
    assert found.beat_replica == pytest.approx(0.0004)  # three beats a minute
    assert found.hand_off == 0.020
    with pytest.raises(CostsMissing, match="part g"):
        costs_from([first])
