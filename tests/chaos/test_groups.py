# SPDX-License-Identifier: Apache-2.0
"""Jobs' lines by group: which go where, and that each group is then judged by its own turns alone."""

from __future__ import annotations

from chaos.dev.lines import Asked, Granted, Line, Trouble, Yielded, from_json, to_json
from chaos.groups import of_group
from chaos.linearizability import check, of_jobs

GROUPS = {"a": ("left",), "b": ("right",), "c": ("right", "left")}
TOKENS = {"right": 7, "left": 4}
JOBS: dict[str, tuple[Line, ...]] = {
    "a": (Asked(0), Granted(10, 3, 0.0, False), Yielded(30, 3, 0, 10, 1, True, 20)),
    "b": (Asked(0), Granted(15, 6, 0.0, False), Yielded(40, 6, 0, 15, 1, True, 35)),
    "c": (Asked(5), Granted(50, 7, 0.0, True, TOKENS), Yielded(70, 7, 5, 50, 1, True, 60, TOKENS)),
}


def test_a_group_has_its_own_jobs_with_their_tokens_there() -> None:
    left = of_group(JOBS, GROUPS, "left")
    assert left == {
        "a": JOBS["a"],
        "c": (Asked(5), Granted(50, 4, 0.0, True), Yielded(70, 4, 5, 50, 1, True, 60)),
    }
    assert [line.token for line in of_group(JOBS, GROUPS, "right")["c"] if isinstance(line, Granted)] == [7]


def test_a_turn_that_was_in_the_other_group_alone_is_none_here() -> None:
    lost = Trouble(60, "TURN_LOST", "lost")
    jobs = {"c": (Asked(5), Granted(50, 7, 0.0, True, {"right": 7}), lost)}
    assert of_group(jobs, GROUPS, "left") == {"c": (Asked(5), lost)}


def test_two_groups_held_at_once_are_two_locks() -> None:
    for group in ("left", "right"):
        assert check(of_jobs(of_group(JOBS, GROUPS, group))).linearizable
    together = {job: [line for line in lines if not isinstance(line, Asked)] for job, lines in JOBS.items()}
    assert not check(of_jobs(together)).linearizable


def test_two_who_held_one_of_the_groups_at_once_are_found_in_it_alone() -> None:
    early = {**JOBS, "c": (Asked(5), Granted(34, 7, 0.0, True, TOKENS), Yielded(70, 7, 5, 34, 1, True, 60, TOKENS))}
    assert check(of_jobs(of_group(early, GROUPS, "left"))).linearizable
    assert not check(of_jobs(of_group(early, GROUPS, "right"))).linearizable


def test_a_line_names_tokens_by_group_where_there_are_several() -> None:
    for line in (line for lines in JOBS.values() for line in lines):
        assert from_json(to_json(line)) == line
        assert ("tokens" in to_json(line)) == (isinstance(line, Granted | Yielded) and bool(line.tokens))
