# SPDX-License-Identifier: Apache-2.0
"""The arithmetic on the log, without a device."""

from __future__ import annotations

import pytest

from nodeagent.backends.sim import log
from nodeagent.backends.sim.log import Event, Interval


def event(name: str, at: int, job: str = "a", *, pid: int = 0, device: str = "D", checksum: str = "") -> Event:
    return Event(name, at, at, job, pid or ord(job), 1, device, checksum=checksum)


def test_an_interval_left_open_ends_with_the_log() -> None:
    events = [event("run", 1), event("stop", 4), event("run", 6), event("touch-begin", 9)]
    assert [(one.begin, one.end) for one in log.able_to_run(events)] == [(1, 4), (6, 9)]


@pytest.mark.parametrize(("begin", "found"), [(5, []), (4, []), (3, [(3, 4)])])
def test_overlap_begins_only_before_the_other_ends(begin: int, found: list[tuple[int, int]]) -> None:
    events = sorted(
        [event("run", 1), event("stop", 4), event("run", begin, "b"), event("stop", 9, "b")],
        key=lambda one: one.at,
    )
    assert [(one.begin, one.end) for one in log.overlaps(events)] == found


def test_two_processes_of_one_job_do_not_overlap_each_other() -> None:
    assert log.overlaps([event("run", 1, pid=1), event("run", 2, pid=2), event("stop", 3, pid=1)]) == []


def test_an_overlap_behind_a_short_interval_is_found() -> None:
    events = [
        event("run", 0),
        event("run", 1, pid=7),
        event("stop", 2, pid=7),
        event("run", 3, "b"),
        event("stop", 9),
    ]
    assert [(one.begin, one.end) for one in log.overlaps(events)] == [(3, 9)]


def test_busy_counts_shared_time_once() -> None:
    spans = [Interval("a", 1, "D", *span) for span in ((0, 4), (2, 6), (3, 5), (8, 9))]
    assert log.busy(spans) == 7


def test_duty_cycle_is_cut_to_the_window() -> None:
    events = [
        event("touch-begin", 0),
        event("touch-end", 10),
        event("touch-begin", 15),
        event("touch-end", 40),
    ]
    assert log.duty_cycle(events, "D", 5, 25) == pytest.approx(0.75)


def test_a_switch_is_timed_from_the_last_kernel() -> None:
    events = [
        event("run", 0),
        event("touch-begin", 1),
        event("touch-end", 3),
        event("stop", 5),
        event("run", 9, "b"),
        event("stop", 10, "b"),
        event("run", 11, "b"),
    ]
    assert [(one.out, one.job, one.took) for one in log.switches(events)] == [("a", "b", 6)]


def test_lost_bytes_are_seen_between_every_two_steps() -> None:
    chain = ["checkpoint-begin", "checkpoint-end", "restore-begin", "restore-end"]
    for index, name in enumerate(chain[1:], 1):
        sums = ["x"] * index + ["y"] * (4 - index)
        events = [event(one, at, checksum=sums[at]) for at, one in enumerate(chain)]
        assert [one.found.name for one in log.lost_bytes(events)] == [name]
