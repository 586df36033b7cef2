# SPDX-License-Identifier: Apache-2.0
"""The explorer itself: small models are searched whole, nothing is broken, and its short cuts leave nothing out."""

from __future__ import annotations

import pytest

from chaos.explore.agents import LOCAL
from chaos.explore.faults import FAULTS, LASTING, Budget
from chaos.explore.invariants import Broken, check_rest, check_state
from chaos.explore.search import explore
from chaos.explore.state import Process, State, TicketState
from chaos.explore.world import Size, World


@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_of_each_kind_breaks_nothing(fault: str) -> None:
    result = explore(World(Size(replicas=1, faults=((fault, 1),))))
    assert result.violation is None, result.violation
    assert result.whole and result.at_rest


@pytest.mark.parametrize("fault", sorted(LASTING))
def test_a_fault_that_stays_makes_nothing_spin(fault: str) -> None:
    result = explore(World(Size(faults=((fault, 2),), lasting=True)))
    assert result.violation is None, result.violation
    assert result.whole and result.at_rest


def test_two_replicas_without_faults() -> None:
    result = explore(World(Size(replicas=2)))
    assert result.violation is None, result.violation
    assert result.whole


def test_three_jobs_keep_their_order() -> None:
    result = explore(World(Size(jobs=3, nodes=1)))
    assert result.violation is None, result.violation
    assert result.whole


def _settled(size: Size) -> set[State]:
    """Every state that can be reached in which no node is in the middle of its work."""
    world = World(size)
    found = {world.start()}
    todo = list(found)
    while todo:
        for following in world.next(todo.pop()):
            if following.state not in found:
                found.add(following.state)
                todo.append(following.state)
    return {state for state in found if all(node.step not in LOCAL for node in state.nodes)}


@pytest.mark.parametrize("faults", [(("restart", 1),), (("slow", 1),), (("resist", 1),), (("unsaved", 1),)], ids=str)
def test_searching_a_nodes_work_on_its_own_leaves_nothing_out(faults: tuple[tuple[str, int], ...]) -> None:
    assert _settled(Size(faults=faults)) == _settled(Size(faults=faults, every_order=True))


def test_the_state_at_the_limit_ends_the_search_and_says_so() -> None:
    result = explore(World(Size()), max_states=100)
    assert not result.whole and result.violation is None


def test_an_unknown_fault_is_named() -> None:
    with pytest.raises(ValueError, match="meteor"):
        Budget({"meteor": 1})


# ------------------------------------------------------------------------------------------------ the invariants


def _with(state: State, *processes: Process | None) -> State:
    return state._replace(nodes=(state.nodes[0]._replace(processes=processes), *state.nodes[1:]))


def test_invariant_1_sees_two_jobs_that_can_run() -> None:
    world = World(Size())
    with pytest.raises(Broken, match="invariant 1"):
        check_state(world, _with(world.start(), Process("RUNNING", 1), Process("RUNNING", 1)))


def test_invariant_2_sees_another_job_beside_the_holder() -> None:
    world = World(Size())
    ticket = TicketState(1, 1, "GRANTED", current=True)
    held = world.start()._replace(tickets=(ticket, None))
    held = held._replace(turn=held.turn._replace(phase="HELD", holder="a", resident="JOB", resident_job="a"))
    check_state(world, _with(held, Process("RUNNING", 1), Process("PARKED", 1)))
    for number, processes in [
        (2, (Process("PARKED", 1), None)),
        (9, (Process("LOCKED", 1), None)),
        (2, (None, Process("LOCKED", 1))),
        (8, (Process("RUNNING", 1, lost=True), None)),
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
    waits = world.start()._replace(tickets=(TicketState(1, 1), None))
    with pytest.raises(Broken, match="invariant 15"):
        check_rest(world, waits)
    with pytest.raises(Broken, match="invariant 16"):
        check_rest(world, waits._replace(turn=waits.turn._replace(phase="RELEASING")))
