# SPDX-License-Identifier: Apache-2.0
"""Where a history's switches begin and end, and how long each phase took."""

from __future__ import annotations

from chaos.history import Recorded
from chaos.scenarios.switches import phase_took, switch_at, switches, turn_at
from ledger.records import Phase, Turn

IDLE, HELD = Phase.IDLE, Phase.HELD
PREPARING, COMMITTING, RELEASING = Phase.PREPARING, Phase.COMMITTING, Phase.RELEASING


def history(*steps: tuple[Phase, int]) -> list[Recorded]:
    """Each step's phase and epoch, a second apart."""
    return [
        Recorded(number, number * 10**9, "demo", Turn(phase=phase, epoch=epoch))
        for number, (phase, epoch) in enumerate(steps, 1)
    ]


def test_a_switch_is_from_prepare_to_grant() -> None:
    (found,) = switches(history((IDLE, 1), (PREPARING, 2), (COMMITTING, 2), (HELD, 2), (IDLE, 2), (HELD, 2)))
    assert (found.took, found.epochs, found.course) == (2.0, (2,), "finished in its own epoch")


def test_one_that_is_taken_back_goes_on_to_the_next_grant() -> None:
    steps = ((PREPARING, 2), (RELEASING, 2), (IDLE, 2), (PREPARING, 3), (COMMITTING, 3), (HELD, 3))
    (found,) = switches(history(*steps))
    assert (found.took, found.epochs, found.course) == (5.0, (2, 3), "released, then served")


def test_one_that_nobody_waits_for_any_more_ends_with_its_commit() -> None:
    steps = ((PREPARING, 2), (COMMITTING, 2), (IDLE, 2), (PREPARING, 3), (COMMITTING, 3), (HELD, 3))
    assert [one.took for one in switches(history(*steps))] == [2.0, 2.0]


def test_one_that_is_under_way_has_no_end() -> None:
    turns = history((HELD, 1), (PREPARING, 2), (COMMITTING, 2))
    (found,) = switches(turns)
    assert (found.end, found.took) == (0, 0.0)
    assert switch_at([found], 3 * 10**9) is found
    assert switch_at([found], 10**9) is None


def test_a_phase_takes_until_the_turn_has_left_it() -> None:
    turns = history(
        (PREPARING, 2), (PREPARING, 2), (COMMITTING, 2), (HELD, 2), (PREPARING, 3), (RELEASING, 3), (IDLE, 3)
    )
    assert phase_took(turns, PREPARING) == 1.5
    assert phase_took(turns, RELEASING) == 1.0
    assert phase_took(turns[:1], PREPARING) == 0.0
    at = turn_at(turns, 3 * 10**9)
    assert at is not None and at.phase is COMMITTING
    assert turn_at(turns, 0) is None
