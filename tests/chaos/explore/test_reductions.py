# SPDX-License-Identifier: Apache-2.0
"""What the search leaves out, it loses nothing by: small models, against searches that leave nothing out.

The plain search here takes a decision in hand in one step and writes it in another, at any time after, and keeps apart
what differs in the faults that are left.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

import coordinator.decide.commands
from chaos.explore import agents, bridge, clients, symmetry
from chaos.explore.bridge import DECIDE, Answered, Core
from chaos.explore.etcd import holds, write
from chaos.explore.faults import Budget
from chaos.explore.invariants import Broken, check_write
from chaos.explore.part import Edges, Part
from chaos.explore.rest import cycle
from chaos.explore.search import explore
from chaos.explore.seen import Seen
from chaos.explore.size import Size
from chaos.explore.state import Effect, Pending, State, put
from chaos.explore.symmetry import Symmetry
from chaos.explore.world import Next, World
from coordinator.decide import Decision
from tests.chaos.explore.reached import as_it_is, reached

TWO = Size(nodes=1, replicas=2)
SIZES = [
    TWO,
    replace(TWO, faults=(("cancel", 1),), jobs=1),
    replace(TWO, faults=(("repeat", 1),), jobs=1),
    replace(TWO, faults=(("expire", 1), ("crash", 1)), jobs=1),
    replace(TWO, faults=(("evict", 1), ("restart", 1)), jobs=1, replicas=1),
]


class _Plain(World):
    """Every step by itself."""

    def next(self, state: State) -> Iterator[Next]:
        yield from self._around(state)
        for (effect, fault), way in self._ready(state).items():
            one = Pending(effect)
            if len(state.pending) < self.size.replicas and one not in state.pending:
                faults = self.budget.spent(state, fault) if fault else state.faults
                yield Next(way.what, state._replace(pending=(*state.pending, one), faults=faults), way.inside)
        for place, one in enumerate(state.pending):
            rest = state._replace(pending=state.pending[:place] + state.pending[place + 1 :])
            if holds(state, one):
                check_write(self, state, one)
                yield self._prompt(state, Next("written", write(rest, one.effect), inside=True))
            else:
                yield Next("loses its guard", rest, inside=True)
            if self.budget.left(state, "crash"):
                yield Next("dies", rest, inside=False)


@pytest.mark.parametrize("size", SIZES, ids=Size.describe)
def test_decisions_in_hand_that_would_be_made_anew_are_no_states_of_their_own(size: Size) -> None:
    plain, world, symmetry = reached(_Plain(size)), World(size), Symmetry(size)
    short, seen = reached(world), Seen(world.budget)
    for state in short:
        seen.add(symmetry.fingerprint(state), 0)
    for state in plain:
        forms = [symmetry.canonical(world.normal(one)) for one in _untaken(world, state)]
        assert any(seen.covers(symmetry.fingerprint(one)) for one in forms), state
    assert short <= {symmetry.canonical(world.normal(state)) for state in plain}
    assert len(short) < len(plain)


def _untaken(world: World, state: State) -> Iterator[State]:
    """The state, and those without a decision in hand that could be taken there, with the fault that it takes left."""
    yield state
    for place, one in enumerate(state.pending):
        for number, fault in enumerate(world.budget.names):
            faults = put(state.faults, number, state.faults[number] + 1)
            rest = state._replace(pending=state.pending[:place] + state.pending[place + 1 :], faults=faults)
            if faults[number] <= world.budget.start[number] and (one.effect, fault) in world._ready(rest):
                yield from _untaken(world, rest)


@pytest.mark.parametrize("size", SIZES, ids=Size.describe)
def test_what_is_not_looked_into_was_found_with_as_many_faults_left(size: Size) -> None:
    part, every = Part(size, 0, 1), reached(World(size))
    part.begin()
    looked = 1
    while new := _go_on(part):
        looked += new
    covers, symmetry = part._seen.covers, Symmetry(size)
    assert all(covers(symmetry.fingerprint(state)) for state in every)
    assert len({state._replace(faults=()) for state in every}) <= looked <= len(every)


def _go_on(part: Part) -> int:
    """One more layer. Returns how many states it has."""
    found = part.look()
    assert found.broken is None
    return part.take(part.answer([(found.asked[0], found.parents[0])]))


@pytest.mark.parametrize("size", [Size(nodes=1), Size(jobs=1)], ids=Size.describe)
def test_what_is_answered_about_a_picture_holds_for_those_that_differ_by_names(size: Size) -> None:
    each, alike = Core(size), Core(size, symmetry=Symmetry(size))
    budget = Budget({})
    for state in reached(World(replace(size, symmetry=False)), as_it_is):
        for request in [DECIDE, *(one for one, _, _ in clients.requests(state, budget))]:
            assert _meaning(each.ask(state, request)) == _meaning(alike.ask(state, request))
    assert alike.asked < each.asked


def _meaning(answers: tuple[Answered, ...]) -> set[tuple[Effect | None, frozenset[str]]]:
    return {(one.effect, frozenset(wait.kind.value for wait in one.waits)) for one in answers}


def test_a_replica_may_die_any_number_of_times_and_no_state_comes_of_it() -> None:
    size = Size(jobs=1, nodes=1, replicas=2, faults=(("expire", 1),))
    living, dying = explore(size), explore(replace(size, faults=(*size.faults, ("crash", 1))))
    assert living.violation is dying.violation is None
    assert living.states == dying.states and living.transitions < dying.transitions


def test_the_plain_search_breaks_where_the_short_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    right = coordinator.decide.commands.acquire

    def into_any_queue(view: Any, job: str, ticket: Any) -> Any:
        found = right(view, job, ticket)
        return structs.replace(found, queue_empty=False) if isinstance(found, Decision) else found

    monkeypatch.setattr(coordinator.decide.commands, "acquire", into_any_queue)
    with pytest.raises(Broken, match="invariant 6"):
        reached(_Plain(TWO))
    result = explore(TWO)
    assert result.violation is not None and result.violation.what.startswith("invariant 6")


# ------------------------------------------------------------------------------------------------- fewer faults left


def test_a_state_is_covered_by_the_same_with_more_faults_left_and_by_no_other() -> None:
    world = World(Size(faults=(("expire", 2), ("restart", 1))))
    symmetry, seen, start = Symmetry(world.size), Seen(world.budget), world.start()

    def mark(expire: int, restart: int, job: int = 0) -> int:
        return symmetry.fingerprint(start._replace(faults=(expire, restart), lost=put(start.lost, 0, job)))

    assert seen.add(mark(1, 0), 0) and seen.add(mark(1, 1), 0) and not seen.add(mark(0, 1), 0)
    assert seen.outdone(mark(1, 0)) and not seen.outdone(mark(1, 1))
    assert seen.covers(mark(1, 1)) and seen.covers(mark(0, 1)) and seen.covers(mark(0, 0))
    assert not seen.covers(mark(2, 0)) and not seen.covers(mark(2, 1)) and not seen.covers(mark(0, 0, job=1))
    alike = world.budget.alike
    assert alike(mark(0, 0)) == alike(mark(2, 1)) != alike(mark(0, 0, job=1))
    assert seen.one_of(alike(mark(2, 1))) in (mark(1, 0), mark(1, 1))


def test_what_was_looked_into_twice_is_one_state_of_a_circle() -> None:
    def edges(*steps: tuple[int, list[int]]) -> Edges:
        sources, targets = array("Q", [one for one, _ in steps]), array("Q", [to for _, after in steps for to in after])
        return Edges(sources.tobytes(), bytes(len(after) for _, after in steps), targets.tobytes())

    assert cycle([edges((1, [2, 3]), (2, [3])), edges((1, [2, 3]), (3, []))]) == []
    assert set(cycle([edges((1, [2]), (1, [2]), (2, [3])), edges((2, [3]), (3, [1]))])) == {1, 2, 3}


def test_what_is_forgotten_is_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search whose memory is far too small finds what another does, with more questions."""
    size = SIZES[-1]
    whole = explore(size)
    for place, name in ((bridge, "_PICTURES"), (symmetry, "_PARTS"), (agents, "_SITUATIONS")):
        monkeypatch.setattr(place, name, 20)
    small = explore(size)
    assert small.asked > whole.asked
    assert (small.states, small.transitions, small.depth) == (whole.states, whole.transitions, whole.depth)
    assert small.whole
