# SPDX-License-Identifier: Apache-2.0
"""A way to name jobs and nodes is not asked about if it can tell nothing apart that another way has not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import coordinator.decide.idle
from chaos.explore import clients
from chaos.explore.bridge import DECIDE, Answered, Core
from chaos.explore.faults import Budget
from chaos.explore.order import ByName, Order
from chaos.explore.picture import Picture
from chaos.explore.size import Size
from chaos.explore.state import Effect
from chaos.explore.world import World
from tests.chaos.explore.reached import reached

SIZES = [
    Size(nodes=1, faults=(("cancel", 1),)),
    Size(jobs=3, nodes=1),
    Size(jobs=1, faults=(("delete", 1),)),
    Size(jobs=1, faults=(("refuse", 1), ("slow", 1)), prompt=True),
]


def _order(*names: str) -> Order:
    order = Order()
    order.named(names)
    return order


def test_what_was_compared_is_noted_and_holds_in_the_ways_that_order_it_alike() -> None:
    order = Order()
    first, second, third = order.named(["x", "z", "y"])
    assert {"x": 1}[first] == 1 and first == "x" and first != second and f"{first}" == "x"
    assert order.asked == 0 and order.alike(order.asked)
    assert sorted([second, first]) == ["x", "z"]
    assert _order("a", "b", "c").alike(order.asked) and _order("a", "c", "b").alike(order.asked)
    assert _order("b", "c", "a").alike(order.asked) and not _order("b", "a", "c").alike(order.asked)
    assert min(third, second) == "y"
    assert _order("a", "c", "b").alike(order.asked) and not _order("a", "b", "c").alike(order.asked)


@pytest.mark.parametrize("compare", [str.__lt__, str.__le__, str.__gt__, str.__ge__])
def test_each_comparison_is_noted(compare: Callable[[str, str], bool]) -> None:
    order = Order()
    first, second = order.named(["x", "y"])
    operation = getattr(type(first), compare.__name__)
    assert operation(first, second) is compare("x", "y") and operation(first, first) is compare("x", "x")
    assert order.asked and not _order("y", "x").alike(order.asked)


def test_a_name_compared_with_something_else_tells_of_every_way() -> None:
    order = Order()
    (first,) = order.named(["x"])
    assert first < "y"
    assert not _order("x").alike(order.asked)


def test_who_looks_up_a_name_learns_nothing_and_who_goes_through_them_does() -> None:
    order = Order()
    second, first = order.named(["y", "x"])
    by_name: ByName[int] = ByName[int]().put(second, 2).put(first, 0).put(first, 1)
    assert (by_name.get("x"), by_name.get("z"), len(by_name), len(by_name.without("x"))) == (1, None, 2, 1)
    assert order.asked == 0
    assert list(by_name) == ["x", "y"] and list(by_name.values()) == [1, 2]
    assert order.asked and not _order("x", "y").alike(order.asked)


@pytest.mark.parametrize("size", SIZES, ids=Size.describe)
def test_the_ways_that_are_left_out_have_no_other_answers(size: Size, monkeypatch: pytest.MonkeyPatch) -> None:
    short, every = Core(size), Core(size)
    budget = Budget(dict(size.faults))
    questions = [
        (state, request)
        for state in reached(World(size))
        for request in (DECIDE, *(one for one, _, _ in clients.requests(state, budget)))
    ]
    answers = [_meaning(short.ask(state, request)) for state, request in questions]
    monkeypatch.setattr(Order, "alike", lambda self, asked: False)
    assert [_meaning(every.ask(state, request)) for state, request in questions] == answers


def test_a_core_that_goes_by_the_names_of_jobs_is_asked_about_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_name(view: Any, turn: Any, *, beside: str = "") -> Any:
        return next((one for one in view.tickets.by_job.values() if one.name != beside), None)

    size = Size(jobs=3, nodes=1)
    state = next(one for one in reached(World(size)) if all(one.tickets) and one.turn.phase == "IDLE")
    assert len(_meaning(Core(size).decide(state))) == 1
    monkeypatch.setattr(coordinator.decide.idle, "head_of", by_name)
    assert len(_meaning(Core(size).decide(state))) == 3


def test_there_is_a_picture_for_each_way_and_the_first_has_the_names_as_they_are() -> None:
    size = Size(jobs=3, nodes=2)
    pictures = list(Picture.all(size))
    assert (pictures[0].names, pictures[0].jobs) == (size.node_names, size.job_names)
    ways = itertools.product(itertools.permutations(size.node_names), itertools.permutations(size.job_names))
    assert {(one.names, one.jobs) for one in pictures} == set(ways)
    assert len({one.order.true for one in pictures}) == len(pictures)


def _meaning(answers: tuple[Answered, ...]) -> set[tuple[Effect | None, frozenset[str]]]:
    return {(one.effect, frozenset(wait.kind.value for wait in one.waits)) for one in answers}
