# SPDX-License-Identifier: Apache-2.0
"""The command: what it searches by default, what it prints, and how it ends."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import replace
from itertools import combinations_with_replacement

import pytest

from chaos.explore import __main__ as program
from chaos.explore.__main__ import main
from chaos.explore.bridge import Core
from chaos.explore.coverage import Coverage, Ways, together
from chaos.explore.faults import ANY, FAULTS
from chaos.explore.pairs import pairs
from chaos.explore.search import explore
from chaos.explore.sets import SETS
from chaos.explore.size import Size
from chaos.explore.world import World


def test_the_default_set_has_every_fault() -> None:
    assert {name for size in SETS for name, _ in size.faults} == set(FAULTS)


def test_the_default_set_has_two_by_two_by_two_with_all_four_faults_in_one_model() -> None:
    large = [size for size in SETS if (size.jobs, size.nodes, size.replicas) == (2, 2, 2)]
    assert any({name for name, _ in size.faults} >= {"expire", "restart", "crash", "repeat"} for size in large)


def test_one_model_is_searched_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--nodes", "1", "--fault", "resist=2", "--missed", "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert "2 jobs, 1 nodes, 1 replicas; resist x 2: searched whole" in said
    assert "ways through the decision core that were taken" in said and "never: " in said


def test_the_set_is_searched_a_model_to_each_process(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "SETS", (Size(jobs=1, nodes=1), Size(jobs=1), Size(nodes=1)))
    main(["--workers", "2"])
    said = capsys.readouterr().out
    assert said.count("searched whole") == 3 and "together" in said


def test_a_set_that_leaves_out_a_way_through_the_core_fails_and_names_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "SETS", (Size(jobs=1, nodes=1), Size(jobs=1, nodes=1)))
    ways = Ways("x.py", frozenset({(1, 1), (7, 8)}), frozenset({(1, 1)}), 0)
    monkeypatch.setattr(program, "together", lambda parts: [ways])
    assert main(["--workers", "1"]) == 3
    assert "never: 7 → 8" in capsys.readouterr().out
    monkeypatch.setattr(program, "together", lambda parts: [replace(ways, taken=ways.possible)])
    assert main(["--workers", "1"]) == 0


def test_the_limit_is_told_from_a_whole_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--fault", "expire", "--max-states", "50", "--workers", "1"]) == 2
    assert "not searched whole" in capsys.readouterr().out


def test_a_violation_in_one_of_many_models_counts_for_more_than_a_limit_in_another(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Size(nodes=1, faults=(("restart", 1),), fence=False)
    large = Size(faults=(("restart", 1),))
    for sizes in ((large, broken), (broken, large)):
        monkeypatch.setattr(program, "pairs", lambda size, sizes=sizes: sizes)
        assert main(["--pairs", "--max-states", "2000", "--workers", "1"]) == 1
    said = capsys.readouterr().out
    assert "not searched whole" in said and "BROKEN: invariant 2: " in said


def test_pairs_are_every_two_faults_with_what_they_need_to_happen() -> None:
    on_one, on_two = (list(pairs(Size(nodes=nodes, prompt=True))) for nodes in (1, 2))
    for pair in combinations_with_replacement(sorted(FAULTS.keys() - ANY), 2):
        assert any(dict(size.faults).items() >= Counter(pair).items() for size in on_one), pair
    assert len(on_one) - len(on_two) == 1, "force beside drop is left out"
    assert all(size.prompt and (size.nodes, size.jobs) == (2, 2) for size in on_two)
    dropped = next(size for size in on_two if dict(size.faults).get("drop") == 2)
    assert dict(dropped.faults) == {"drop": 2, "restart": 2, "away": 2}
    taken = next(size for size in on_two if {"taken", "expire"} <= dict(size.faults).keys())
    assert taken.specs == ((0,), (0, 1))


def test_pairs_choose_the_faults_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--pairs", "--fault", "expire"])
    assert "leave out --fault" in capsys.readouterr().err


def test_what_is_broken_is_shown_with_the_way_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Without the OS locks a helper that outlives its agent acts beside the next one: the fence is needed."""
    assert main(["--no-os-locks", "--nodes", "1", "--fault", "restart", "--workers", "1"]) == 1
    said = capsys.readouterr().out
    assert "BROKEN: invariant 2: " in said and "its helpers end" in said


@pytest.mark.parametrize("fault", ["meteor", "expire=x"])
def test_an_unknown_fault_is_answered_with_those_there_are(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--fault", fault])
    assert "expire" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--priorities", "1"], ["--priorities", "x,y"], ["--specs", "1/3"]])
def test_numbers_that_do_not_fit_the_model_are_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(wrong)


def test_ways_that_several_searches_took_count_together() -> None:
    possible = frozenset({(1, 1), (1, 0), (2, 2)})
    one, other = Ways("x.py", possible, frozenset({(1, 1)}), 0), Ways("x.py", possible, frozenset({(2, 2)}), 0)
    (both,) = together([one, other])
    assert both.missed == ["1 → past it"]


def test_a_traced_question_leaves_nothing_that_only_the_collector_would_free() -> None:
    """It is off while a search goes on."""
    core, state = Core(Size(), Coverage()), World(Size()).start()
    gc.collect()
    gc.disable()
    try:
        assert core.decide(state)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_after_many_calls_without_a_new_way_none_is_traced_any_more(capsys: pytest.CaptureFixture[str]) -> None:
    size = Size(nodes=1, faults=(("resist", 1),))
    every, some = explore(size), explore(size, patience=30)
    assert every.traced == every.calls == some.calls
    assert 30 < some.traced < some.calls
    assert all(one.taken <= other.taken for one, other in zip(some.ways, every.ways, strict=True))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(program, "PATIENCE", 30)
        assert main(["--nodes", "1", "--fault", "resist", "--workers", "1"]) == 0
    assert f"by tracing {some.traced:,} of {some.calls:,} calls" in capsys.readouterr().out
