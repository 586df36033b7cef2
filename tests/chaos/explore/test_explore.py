# SPDX-License-Identifier: Apache-2.0
"""The search itself: small models are searched whole, nothing is broken, and its short cuts leave nothing out.

Every fault is in the set that ``python -m chaos.explore`` searches; here are a few that are quick.
"""

from __future__ import annotations

import itertools

import pytest

from chaos.explore.faults import Budget
from chaos.explore.invariants import Broken, check_rest, check_state
from chaos.explore.part import Edges
from chaos.explore.rest import cycle
from chaos.explore.search import explore, odds
from chaos.explore.size import Size
from chaos.explore.state import Process, State, TicketState
from chaos.explore.symmetry import Symmetry
from chaos.explore.world import World
from tests.chaos.explore.reached import as_it_is, reached


@pytest.mark.parametrize("fault", ["cancel", "ends", "lapse", "pause", "restart", "slow", "taken", "unrestored"])
def test_one_fault_breaks_nothing(fault: str) -> None:
    result = explore(Size(nodes=1, faults=((fault, 1),)))
    assert result.violation is None, result.violation
    assert result.whole and result.at_rest


@pytest.mark.parametrize("fault", ["fatal", "resist", "unsaved"])
def test_a_fault_that_stays_makes_nothing_spin(fault: str) -> None:
    result = explore(Size(nodes=1, faults=((fault, 2),), lasting=True))
    assert result.violation is None, result.violation
    assert result.whole and result.at_rest


def test_two_replicas_without_faults() -> None:
    result = explore(Size(replicas=2))
    assert result.violation is None, result.violation
    assert result.whole


# ------------------------------------------------------------------------------------------------- what is left out


@pytest.mark.parametrize("size", [Size(), Size(nodes=1, faults=(("cancel", 1),))], ids=str)
def test_of_states_that_differ_by_names_none_is_left_out(size: Size) -> None:
    from dataclasses import replace

    every = reached(World(replace(size, symmetry=False)), as_it_is)
    symmetry, canonical = Symmetry(size), Symmetry(size).canonical
    alike = {symmetry.fingerprint(canonical(state)) for state in every}
    assert {symmetry.fingerprint(state) for state in reached(World(size))} == alike
    assert len(alike) < len(every)


def test_states_that_can_be_told_apart_have_other_fingerprints() -> None:
    size = Size(nodes=1, faults=(("cancel", 1),))
    every, symmetry = reached(World(size), as_it_is), Symmetry(size)
    assert len({symmetry.fingerprint(state) for state in every}) == len(every)


def test_the_names_of_jobs_and_nodes_do_not_matter() -> None:
    size = Size(jobs=3, nodes=2)
    symmetry, start = Symmetry(size), World(size).start()
    seen = set()
    for jobs, nodes in itertools.product(itertools.permutations(range(3)), itertools.permutations(range(2))):
        tickets = tuple((TicketState(1, 1), TicketState(2, 1), None)[job] for job in jobs)
        ran = tuple((Process("RUNNING", 1), None, Process("PARKED", 1))[job] for job in jobs)
        there = start.nodes[0]._replace(processes=ran)
        state = start._replace(tickets=tickets, nodes=tuple((there, start.nodes[1])[node] for node in nodes))
        seen.add(symmetry.fingerprint(symmetry.canonical(state)))
    assert len(seen) == 1


def test_several_processes_search_what_one_does() -> None:
    size = Size(faults=(("slow", 1),))
    alone, shared = explore(size), explore(size, workers=3)
    assert alone.violation is shared.violation is None
    assert (shared.states, shared.transitions, shared.depth, shared.at_rest) == (
        alone.states,
        alone.transitions,
        alone.depth,
        alone.at_rest,
    )


def test_the_state_at_the_limit_ends_the_search_and_says_so() -> None:
    result = explore(Size(), max_states=100)
    assert not result.whole and result.violation is None


def test_the_odds_that_two_states_are_taken_for_one() -> None:
    assert odds(10_000_000, Size(faults=(("expire", 1), ("restart", 1), ("repeat", 1)))) < 1e-4


def test_an_unknown_fault_is_named() -> None:
    with pytest.raises(ValueError, match="meteor"):
        Budget({"meteor": 1})


def _edges(steps: dict[int, list[int]]) -> list[Edges]:
    from array import array

    targets = [to for after in steps.values() for to in after]
    counts = [len(after) for after in steps.values()]
    return [Edges(array("Q", steps).tobytes(), array("B", counts).tobytes(), array("Q", targets).tobytes())]


def test_what_goes_round_in_a_circle_is_found() -> None:
    assert cycle(_edges({1: [2, 3], 2: [3], 3: []})) == []
    assert set(cycle(_edges({1: [2], 2: [3], 3: [4], 4: [2]}))) == {2, 3, 4}


# ------------------------------------------------------------------------------------------------ the invariants


def _with(state: State, *processes: Process | None) -> State:
    return state._replace(nodes=(state.nodes[0]._replace(processes=processes), *state.nodes[1:]))


def test_invariant_1_sees_two_jobs_that_can_run() -> None:
    world = World(Size())
    with pytest.raises(Broken, match="invariant 1"):
        check_state(world, _with(world.start(), Process("RUNNING", 1), Process("RUNNING", 1)))


def test_invariant_2_sees_another_job_beside_the_holder() -> None:
    world = World(Size())
    ticket = TicketState(1, 2, "GRANTED", current=True)
    held = world.start()._replace(tickets=(ticket, None), lost_by=(1 << 1, 0))
    turn = held.turn._replace(phase="HELD", holder="a", holder_session=2, resident="JOB", resident_job="a")
    held = held._replace(turn=turn._replace(nodes=("n1", "n2")))
    check_state(world, _with(held, Process("RUNNING", 2), Process("PARKED", 1)))
    for number, processes in [
        (2, (Process("PARKED", 2), None)),
        (9, (Process("LOCKED", 2), None)),
        (2, (None, Process("LOCKED", 1))),
        (8, (Process("RUNNING", 1), None)),
    ]:
        with pytest.raises(Broken, match=f"invariant {number}"):
            check_state(world, _with(held, *processes))


def test_invariant_5_sees_two_grants() -> None:
    world = World(Size())
    both = (TicketState(1, 1, "GRANTED", current=True), TicketState(2, 1, "GRANTED", current=True))
    with pytest.raises(Broken, match="invariant 5"):
        check_state(world, world.start()._replace(tickets=both))


def test_invariants_15_and_16_see_who_waits_for_ever() -> None:
    world = World(Size())
    start = world.start()
    waits = start._replace(tickets=(TicketState(1, 1), None), turn=start.turn._replace(phase="IDLE"))
    with pytest.raises(Broken, match="invariant 15"):
        check_rest(world, waits)
    with pytest.raises(Broken, match="invariant 16"):
        check_rest(world, waits._replace(turn=waits.turn._replace(phase="RELEASING")))
