# SPDX-License-Identifier: Apache-2.0
"""Long runs in pieces: results are kept and add up, and what is done already is not done again."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from chaos.__main__ import main
from chaos.checkers import Violation
from chaos.pieces import Halt, Piece, Plan, left, run_all, run_here
from chaos.processes import ProcessTrouble
from chaos.results import Result, Results, code_state, total
from chaos.scenarios.scenario import Figures, Run, Scenario
from chaos.summary import percentiles, summary


def result(
    seed: int, hits: int = 1, *, commit: str = "c", whole: bool = True, violations: Sequence[str] = ()
) -> Result:
    figures = Figures(10, hits + 1, {"PREPARING": hits}, (0.1,) * hits)
    return Result("s", seed, commit, "today", 60.0, whole, figures, (), tuple(violations))


def scenario(*, breaks: bool = False, ends: bool = True) -> Scenario:
    """Counts a fault each time that it may go on."""

    def body(run: Run) -> tuple[list[str], list[Violation]]:
        hits = 0
        while hits < run.count and not run.over:
            hits += 1
            run.say(f"fault {hits}")
        run.note(Figures(hits, hits, {"COMMITTING": hits}))
        if not ends:
            raise ProcessTrouble("job-a", "has ended", Path("/nonexistent"))
        return ["a fact"], [Violation("order", "was not kept")] if breaks else []

    return Scenario("s", "It holds.", 5, body)


def test_what_is_kept_is_what_was_shown(tmp_path: Path) -> None:
    results = Results(tmp_path / "new")
    assert results.read() == []
    both = [result(1), result(2, violations=["order: was not kept"])]
    for one in both:
        results.add(one)
    assert results.read() == both
    assert results.of("c", "s", 2) == both[1:]
    assert results.of("d", "s") == []


def test_a_line_that_a_kill_has_cut_is_no_result(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.add(result(1))
    with (tmp_path / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"scenario": "s", "se')
    assert results.read() == [result(1)]


def test_figures_add_up() -> None:
    found = total([result(1, 2), result(2, 3)])
    assert (found.switches, found.faults, found.hits, len(found.delays)) == (20, 7, {"PREPARING": 5}, 5)
    assert found.counting == 5


def test_what_the_results_hold_is_not_run_again(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.add(result(1))
    results.add(result(2, 2, whole=False))
    results.add(result(3, whole=False, violations=["order: was not kept"]))
    results.add(result(4, commit="older"))
    one = scenario()
    assert list(left(Plan(one, (1, 2, 3, 4), 5), results, "c")) == [
        Piece(one, 2, 3, math.inf),  # it was stopped after two of its five
        Piece(one, 4, 5, math.inf),
    ]
    assert list(left(Plan(one, (1, 2), 5, seconds=90.0), results, "c")) == [
        Piece(one, 1, 5, 30.0),
        Piece(one, 2, 5, 30.0),
    ]


def test_a_run_is_kept_with_its_figures_and_facts(tmp_path: Path) -> None:
    results, said = Results(tmp_path), list[str]()
    assert run_here(Piece(scenario(), 7, 3, math.inf), results, said.append, Halt()).held
    (kept,) = results.read()
    assert (kept.seed, kept.whole, kept.figures.hits, kept.facts) == (7, True, {"COMMITTING": 3}, ("a fact",))
    assert [line for line in said if "fault" in line][1:] == ["  · fault 1", "  · fault 2", "  · fault 3"]


def test_a_run_that_is_stopped_keeps_what_it_has_seen(tmp_path: Path) -> None:
    results, stop = Results(tmp_path), Halt()

    def say(line: str) -> None:
        if "fault 2" in line:
            stop.set()

    assert run_here(Piece(scenario(), 1, 50, math.inf), results, say, stop).held
    (kept,) = results.read()
    assert (kept.whole, kept.figures.counting) == (False, 2)
    assert run_all([Piece(scenario(), 2, 50, math.inf)], results, say, stop)
    assert len(results.read()) == 1


def test_a_run_that_comes_to_no_end_has_not_held(tmp_path: Path) -> None:
    results = Results(tmp_path)
    assert not run_here(Piece(scenario(ends=False), 1, 1, math.inf), results, print, Halt()).held
    assert results.read()[0].violations[0].startswith("the scenario itself: came to no end: job-a has ended")


def test_one_violation_is_enough(tmp_path: Path) -> None:
    pieces = [Piece(scenario(breaks=seed == 1), seed, 1, math.inf) for seed in (1, 2)]
    assert not run_all(pieces, Results(tmp_path), print, Halt())
    assert len(Results(tmp_path).read()) == 2


def test_who_is_told_of_a_halt(tmp_path: Path) -> None:
    stop, told = Halt(), list[str]()
    with stop.telling(lambda: told.append("during")):
        stop.set()
        stop.set()
    with stop.telling(lambda: told.append("after")):
        pass
    assert told == ["during", "after"]


def test_the_summary_has_counts_for_each_phase_and_every_violation() -> None:
    lines = "\n".join(summary([result(1, 2), result(2, 3), result(4, violations=["order: was not kept"])]))
    assert "3 runs; 3 seeds (1-2, 4); 3.0 minutes" in lines
    assert "30 switches; 9 faults, 6 count: 6 PREPARING" in lines
    assert "1 violations\n      seed 4, today: order: was not kept" in lines


def test_percentiles_are_of_all() -> None:
    found = percentiles([one / 1000 for one in range(1, 201)])
    assert found == "median 100 ms, p99 199 ms, largest 200 ms, of 200"


def test_changed_code_is_other_code(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
        subprocess.run(["git", "-C", str(tmp_path), *who, *arguments], check=True, capture_output=True, timeout=30)

    assert code_state(tmp_path) == "unknown"
    git("init")
    file = tmp_path / "file"
    file.write_text("1", encoding="ascii")
    git("add", "file")
    git("commit", "-m", "first")
    clean = code_state(tmp_path)
    file.write_text("2", encoding="ascii")
    second = code_state(tmp_path)
    file.write_text("3", encoding="ascii")
    assert second.startswith(f"{clean}-dirty-")
    assert code_state(tmp_path) not in (clean, second)
    file.write_text("1", encoding="ascii")
    assert code_state(tmp_path) == clean
    (tmp_path / "new").write_text("4", encoding="ascii")
    assert code_state(tmp_path).startswith(f"{clean}-dirty-")


@pytest.mark.slow
def test_seeds_run_side_by_side_each_in_a_world_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", "cancel-waiter", "--seeds", "1-2", "--count", "1", "--workers", "2", "--results", str(tmp_path)]
    assert main(run) == 0
    assert {one.seed for one in Results(tmp_path).read()} == {1, 2}
    assert "[1]" in capsys.readouterr().out
    assert main(["report", "--all", "--results", str(tmp_path)]) == 0
    assert "2 runs; 2 seeds (1-2)" in capsys.readouterr().out
