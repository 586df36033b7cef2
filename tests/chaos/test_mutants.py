# SPDX-License-Identifier: Apache-2.0
"""The planted bugs: all can still be planted; the quick ones are planted and noticed; and nothing else is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from chaos.mutants.__main__ import main
from chaos.mutants.catalog import ALL
from chaos.mutants.catch import Chaos, Explorer, Pytest
from chaos.mutants.edit import DoesNotApply, Edit
from chaos.mutants.mutant import Mutant
from chaos.mutants.run import TREE, Outcome, plant

NEEDED = {
    "turn-not-compared",
    "ticket-not-compared",
    "grant-without-ignore-lease",
    "grant-at-first-committed",
    "commit-at-first-prepared",
    "old-directives-answer",
    "old-incarnations-answer",
    "release-does-not-wait",
    "commit-without-second-phase",
    "served-by-name",
    "own-ticket-before-the-view",
    "free-path-after-lost",
    "no-second-look",
    "incoming-ticket-gone",
    "refused-head-at-once",
    "helper-without-the-lock",
    "spec-in-mid-switch",
    "unlocks-a-begun-commit",
}
"""Each stands for a defence that the protocol cannot do without."""

SEARCHED = [one for one in ALL if one.fast and isinstance(one.catch, Explorer)]


def test_every_defence_has_its_bug() -> None:
    names = [one.name for one in ALL]
    assert len(set(names)) == len(names)
    assert set(names) >= NEEDED


def test_the_page_has_each_bug_as_it_is_planted_now() -> None:
    """The last column is what a run said: `make mutants`."""
    page = (TREE / "docs" / "mutants.md").read_text(encoding="utf-8")
    rows = [f"| {one.name} | {one.what}{f' {one.behind}' if one.behind else ''} | {one.catch} | " for one in ALL]
    assert [row for row in rows if row not in page] == []
    assert f"{len(ALL)} bugs" in page


@pytest.mark.parametrize("mutant", ALL, ids=lambda one: one.name)
def test_it_can_still_be_planted(mutant: Mutant) -> None:
    sources: dict[str, str] = {}
    for edit in mutant.edits:
        source = sources.get(edit.path) or (TREE / edit.path).read_text(encoding="utf-8")
        sources[edit.path] = edit.applied(source)


@pytest.fixture(scope="module")
def planted(request: pytest.FixtureRequest) -> Iterator[Callable[[Mutant], Outcome]]:
    """What has become of a bug. All that tests will ask for are planted two at a time, in processes of their own."""
    names = {one.name for one in request.session.items}
    wanted = [one for one in SEARCHED if f"{test_the_explorer_notices_it.__name__}[{one.name}]" in names]
    with ThreadPoolExecutor(2) as pool:
        outcomes = {mutant.name: pool.submit(plant, mutant) for mutant in wanted}
        yield lambda mutant: outcomes[mutant.name].result()
        pool.shutdown(cancel_futures=True)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SEARCHED, ids=lambda one: one.name)
def test_the_explorer_notices_it(mutant: Mutant, planted: Callable[[Mutant], Outcome]) -> None:
    """The others take an etcd, or longer: `make mutants`."""
    outcome = planted(mutant)
    assert outcome.caught, outcome.said


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (Edit("x.py", "f", "two", "2"), "is not there"),
        (Edit("x.py", "f", "1", "2"), "2 times there"),
        (Edit("x.py", "A.g", "one", "2"), "has no A.g"),
        (Edit("x.py", "A.f", "return 3", "return ("), "no Python"),
    ],
)
def test_what_has_changed_is_not_edited_in_silence(edit: Edit, why: str) -> None:
    source = "def f():\n    return 1 + 1\n\n\nclass A:\n    def f(self):\n        return 3\n"
    with pytest.raises(DoesNotApply, match=why):
        edit.applied(source)


def test_an_edit_changes_the_function_that_it_names_alone() -> None:
    source = "def f():\n    return 1\n\n\nclass A:\n    def f(self):\n        return 1\n"
    assert Edit("x.py", "A.f", "1", "2").applied(source) == source[:-2] + "2\n"


def test_a_check_that_breaks_down_has_noticed_nothing() -> None:
    crashed = "Traceback (most recent call last):\nImportError: no such thing"
    for catch in (Explorer(frozenset({3}), ()), Pytest("tests/x.py"), Chaos("kill-holder", 1, 1, frozenset({"p"}))):
        assert not catch.noticed(1, crashed)
    assert not Explorer(frozenset({3}), ()).noticed(1, "BROKEN: invariant 4: another one\n")
    assert Explorer(frozenset({4}), ()).noticed(1, "BROKEN: invariant 4: this one\n")
    assert not Pytest("tests/x.py").noticed(2, "FAILED tests/x.py::test_a - assert 0\n")
    assert Pytest("tests/x.py").noticed(1, "FAILED tests/x.py::test_a - assert 0\n") == "test_a: assert 0"
    assert not Chaos("kill-holder", 1, 1, frozenset({"p"})).noticed(1, "  VIOLATED q: something else\n")


def test_the_list_names_every_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [one.name for one in ALL]


def test_an_unknown_bug_is_answered_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["meteor"])
    assert "turn-not-compared" in capsys.readouterr().err
