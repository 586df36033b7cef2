# SPDX-License-Identifier: Apache-2.0
"""Parts a, b and d measure what they say, from a real system and the floor beside it."""

from __future__ import annotations

from dataclasses import replace

from bench.parts import latency
from bench.parts.names import ALONE, BARE, FLOOR_ALONE, FLOOR_HAND_OFF, FLOOR_MOVING, HAND_OFF, MOVING
from bench.settings import QUICK
from bench.system import Bench


def test_the_system_and_the_floor_hand_off_with_as_many_revisions() -> None:
    with Bench() as bench:
        found = latency.run(bench, replace(QUICK, rounds=2, warm_up=1), "abd")
    rows = {row.name: row.figures for row in found.rows}
    assert rows[BARE]["revisions"] == 1
    # Ticket and grant in one, then the yield.
    assert rows[ALONE]["revisions"] == rows[FLOOR_ALONE]["revisions"] == 2
    # The yield, which also says PREPARE; PREPARED; COMMIT; COMMITTED; the grant.
    assert rows[HAND_OFF]["revisions"] == rows[FLOOR_HAND_OFF]["revisions"] == 5
    assert rows[MOVING]["revisions"] == rows[FLOOR_MOVING]["revisions"]
    assert rows[FLOOR_HAND_OFF]["p50_ms"] > rows[FLOOR_ALONE]["p50_ms"] > rows[BARE]["p50_ms"]
    assert all("x_floor" in rows[name] for name in (ALONE, HAND_OFF, MOVING))
    assert [check.what for check in found.checks if check.part == "b" and not check.holds] == []
