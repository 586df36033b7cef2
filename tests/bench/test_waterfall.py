# SPDX-License-Identifier: Apache-2.0
"""A waterfall is of what was noted between a yield and the next grant, and of nothing else."""

from __future__ import annotations

import pytest

from bench.waterfall import hand_offs, lay_over, read, shares, svg, text

_MS = 1_000_000


def noted(start: int, *points: tuple[int, str]) -> list[str]:
    return [f"{start + at * _MS} 7 {name}" for at, name in points]


def test_hand_offs_are_laid_over_one_another_whatever_the_order_of_their_points() -> None:
    lines = [
        *noted(0, (1, "agent.epoch")),  # before the first
        *noted(
            10 * _MS,
            (0, "job.yield.called"),
            (4, "replica.yield.asked"),
            (3, "agent.epoch"),
            (9, "job.acquire.returned"),
        ),
        *noted(
            99 * _MS,
            (0, "job.yield.called"),
            (2, "replica.yield.asked"),
            (5, "agent.epoch"),
            (7, "job.acquire.returned"),
        ),
        *noted(
            500 * _MS, (0, "job.yield.called"), (1, "client.beat.sent"), (9, "agent.other"), (9, "job.acquire.returned")
        ),
    ]
    rows, alike = lay_over(hand_offs(read(lines)))
    assert alike == 2
    assert [(row.name, row.at, row.took) for row in rows] == [
        ("job.yield.called", 0.0, 0.0),
        ("replica.yield.asked", 3.0, 3.0),
        ("agent.epoch", 4.0, 1.0),
        ("job.acquire.returned", 8.0, 4.0),
    ]
    assert shares(rows) == [("job", 4.0), ("replica", 3.0), ("agent", 1.0)]
    assert "4.00   1.00  agent.epoch" in "\n".join(text(rows))
    assert svg(rows).count("<rect") == len(rows)


def test_a_point_that_is_passed_twice_is_two() -> None:
    lines = noted(0, (0, "job.yield.called"), (1, "agent.epoch"), (5, "agent.epoch"), (6, "job.acquire.returned"))
    rows, _ = lay_over(hand_offs(read(lines)))
    assert [(row.name, row.took) for row in rows][1:3] == [("agent.epoch", 1.0), ("agent.epoch", 4.0)]


def test_without_a_hand_off_there_is_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match="no hand-off"):
        lay_over(hand_offs(read(noted(0, (0, "agent.epoch")))))
