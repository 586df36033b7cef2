# SPDX-License-Identifier: Apache-2.0
"""The report's arithmetic, and that each broken promise is named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chaos.dev.lines import Asked, Granted, Line, Ready, Rested, Trouble, Yielded, from_json, to_json
from chaos.dev.report import (
    Evidence,
    Window,
    bound,
    busy_seconds,
    cycles,
    duty,
    hand_offs,
    percentile,
    split,
    violations,
)
from nodeagent.backends.sim.log import Event

MS = 1_000_000
PIDS = {"job-a": 1, "job-b": 2}


def event(name: str, ms: int, job: str, *, device: str = "d0", checksum: str = "") -> Event:
    return Event(name, ms * MS, ms * MS, job, PIDS[job], 7, device, checksum=checksum)


def turn(job_token: int, asked: int, granted: int, ended: int, *, intact: bool = True) -> list[Line]:
    return [
        Asked(asked * MS),
        Granted(granted * MS, job_token, (granted - asked) / 1000, restored=True),
        Yielded(ended * MS, job_token, asked * MS, granted * MS, kernels=1, intact=intact),
    ]


def good() -> Evidence:
    """job-a trains from 0 to 100 ms, job-b asks at 50 and is restored; then the devices go back."""
    return Evidence(
        {
            "n0": [
                event("run", 0, "job-a"),
                event("touch-begin", 10, "job-a"),
                event("touch-end", 100, "job-a"),
                event("stop", 110, "job-a"),
                event("checkpoint-begin", 110, "job-a", checksum="a1"),
                event("checkpoint-end", 130, "job-a", checksum="a1"),
                event("run", 150, "job-b"),
                event("touch-begin", 160, "job-b"),
                event("touch-end", 260, "job-b"),
                event("stop", 270, "job-b"),
                event("restore-begin", 280, "job-a", checksum="a1"),
                event("restore-end", 300, "job-a", checksum="a1"),
                event("run", 310, "job-a"),
                event("touch-begin", 320, "job-a"),
                event("touch-end", 420, "job-a"),
            ]
        },
        {"job-a": [*turn(3, 0, 1, 102), *turn(5, 290, 315, 422)], "job-b": turn(4, 50, 155, 262)},
    )


def with_events(*more: Event) -> Evidence:
    evidence = good()
    return Evidence({"n0": sorted([*evidence.devices["n0"], *more], key=lambda one: one.at)}, evidence.jobs)


def with_lines(job: str, *more: Line) -> Evidence:
    evidence = good()
    return Evidence(evidence.devices, {**evidence.jobs, job: [*evidence.jobs[job], *more]})


def test_a_hand_off_lasts_from_the_last_kernel_or_the_wish_until_able_to_run() -> None:
    first, second = hand_offs(good())

    assert (first.out, first.job, first.begin, first.able, first.told) == (
        "job-a", "job-b", 100 * MS, 150 * MS, 155 * MS,
    )  # fmt: skip
    assert first.copying == 20 * MS
    assert first.coordination == 35 * MS
    # job-a asked 30 ms after job-b's last kernel: what came before was not waited for.
    assert (second.begin, second.took, second.copying) == (290 * MS, 20 * MS, 10 * MS)


def test_the_next_is_able_only_when_it_is_on_all_devices() -> None:
    evidence = good()
    slow = [event("run", 153, "job-b", device="d1")]
    first = hand_offs(Evidence({**evidence.devices, "n1": slow}, evidence.jobs))[0]

    assert first.able == 153 * MS


def test_the_first_turn_of_a_job_is_no_hand_off() -> None:
    assert hand_offs(Evidence({"n0": []}, {"job-a": turn(1, 0, 1, 2)})) == []


def test_where_the_time_goes() -> None:
    evidence = good()
    window = cycles(evidence, Window(0, 500 * MS))

    assert window == Window(102 * MS, 422 * MS)
    assert duty(evidence, window) == pytest.approx(200 / 320)
    parts = split(evidence, window, hand_offs(evidence))
    # Swapping: 102 to 155 and 290 to 315; held besides: 155 to 262 and 315 to 422; wanted by nobody: 262 to 290.
    assert parts.swap == pytest.approx((53 + 25) / 320)
    assert parts.unheld_idle == pytest.approx(28 / 320)
    assert parts.busy + parts.swap + parts.held_idle + parts.unheld_idle == pytest.approx(1)
    assert busy_seconds(evidence, window) == pytest.approx(0.1)


def test_one_turn_is_no_cycle() -> None:
    assert cycles(good(), Window(0, 200 * MS)) is None


@pytest.mark.parametrize(
    ("solo", "busy", "swap", "expected"),
    [((0.4, 0.4), 1.0, 0.0, 0.8), ((0.4, 0.4), 1.0, 1.0, 0.5), ((0.6, 0.6), 1.0, 0.0, 1.0), ((0.3,), 1.0, 0.1, 0.3)],
)
def test_the_bound(solo: Sequence[float], busy: float, swap: float, expected: float) -> None:
    assert bound(solo, busy, swap) == pytest.approx(expected)


def test_percentiles() -> None:
    assert percentile([], 0.95) == 0
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile(list(range(100)), 0.95) == 95


def test_a_good_run_has_no_violation() -> None:
    assert violations(good(), ["job-a", "job-b"]) == []


@pytest.mark.parametrize(
    ("evidence", "says"),
    [
        (with_events(event("run", 120, "job-b", device="d0"), event("stop", 121, "job-b")), ""),
        (with_events(event("run", 105, "job-b")), "job-a and job-b were both able to run on d0 of n0 for 5.0 ms."),
        (
            with_events(event("touch-begin", 90, "job-b", device="d1"), event("touch-end", 95, "job-b", device="d1")),
            "Kernels of job-a on d0 and of job-b on d1 ran at once.",
        ),
        (with_events(event("restore-begin", 305, "job-a", checksum="lost")), "Bytes of job-a on d0 differ after its"),
        (with_lines("job-b", Trouble(300, "TURN_LOST", "over")), "job-b met TURN_LOST: over"),
        (with_lines("job-b", *turn(6, 430, 440, 450, intact=False)), "job-b found its state changed in the turn with"),
        (with_lines("job-b", *turn(2, 430, 440, 450)), "job-b got token 2 after job-a had got 5."),
    ],
)
def test_each_broken_promise_is_named(evidence: Evidence, says: str) -> None:
    broken = violations(evidence, ["job-a", "job-b"])

    assert len(broken) == (1 if says else 0), broken
    assert all(one.startswith(says) for one in broken)


def test_a_job_without_a_turn_is_named() -> None:
    assert violations(good(), ["job-a", "job-c"]) == ["job-c never had a turn."]


@pytest.mark.parametrize("line", [Ready(1), *turn(3, 1, 2, 3), Trouble(1, "R", "m"), Rested(2)])
def test_lines_come_back_as_they_were_written(line: Line) -> None:
    assert from_json(to_json(line)) == line


def test_what_is_no_line_is_left_out() -> None:
    assert from_json("Traceback (most recent call last):") is None
