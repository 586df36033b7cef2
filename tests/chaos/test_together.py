# SPDX-License-Identifier: Apache-2.0
"""Both or none: tickets of an acquire of two groups that are right, and the same with one thing wrong."""

from __future__ import annotations

import pytest

from chaos.dev.lines import Asked, Granted, Line, Yielded
from chaos.observer import Seen
from chaos.together import acquires, together
from ledger.keys import Kind, Place
from ledger.records import Ticket, TicketState

WAITING, GRANTED = TicketState.WAITING, TicketState.GRANTED
BOTH = ("left", "right")


def ticket(revision: int, group: str, create: int, state: TicketState | None, token: int = 0) -> Seen:
    value = None if state is None else Ticket(state=state, token=token, groups=BOTH)
    return Seen(revision, revision * 10, Place(Kind.TICKET, group=group, name="a"), create, value)


def granted(left: int, right: int) -> list[Line]:
    tokens = {"left": left, "right": right}
    return [Asked(0), Granted(45, left, 0.0, False, tokens), Yielded(80, left, 0, 45, 1, True, 55, tokens)]


# The left group grants first, and the right one gets its turn back first.
TICKETS = [
    ticket(1, "left", 1, WAITING),
    ticket(1, "right", 1, WAITING),
    ticket(3, "left", 1, GRANTED, 2),
    ticket(4, "right", 1, GRANTED, 3),
    ticket(6, "right", 0, None),
    ticket(7, "left", 0, None),
]
LINES = granted(2, 3)
AGAIN = [ticket(8, "left", 8, WAITING), ticket(8, "right", 8, WAITING)]


def wrong(tickets: list[Seen], lines: list[Line]) -> set[str]:
    tickets = sorted(tickets, key=lambda one: one.revision)
    return {one.promise for one in together(acquires(tickets), {"a": lines})}


def test_both_at_once_is_no_violation() -> None:
    assert wrong(TICKETS, LINES) == set()
    assert wrong([*TICKETS, *AGAIN], LINES) == set()
    assert [one.held for one in acquires(TICKETS)] == [True]


def test_one_that_was_granted_and_taken_back_untold_was_kept_by_nobody() -> None:
    """As when the other group refuses: its job is told of no turn."""
    half = [one for one in TICKETS if one.ticket is None or one.ticket.token != 3]
    assert wrong(half, [Asked(0)]) == set()
    assert [one.held for one in acquires(half)] == [False]


def test_an_acquire_of_one_group_is_not_looked_at() -> None:
    alone = Seen(1, 10, Place(Kind.TICKET, group="left", name="a"), 1, Ticket(groups=("left",)))
    assert acquires([alone]) == []


@pytest.mark.parametrize(
    ("tickets", "lines", "promise"),
    [
        pytest.param([one for one in TICKETS if one.place.group == "left"], [], "all or none", id="one place alone"),
        pytest.param(
            [ticket(1, "left", 1, WAITING), ticket(2, "right", 2, WAITING)], [], "all or none", id="two moments"
        ),
        pytest.param(
            [one for one in TICKETS if one.ticket is None or one.ticket.token != 3],
            LINES,
            "all or none",
            id="told of both with one granted",
        ),
        pytest.param(TICKETS, granted(2, 9), "all or none", id="told of another token"),
        pytest.param(TICKETS, [Granted(45, 2, 0.0, False, {"left": 2})], "all or none", id="told of one of the two"),
        pytest.param(
            [*TICKETS[:3], ticket(4, "left", 0, None), ticket(5, "right", 1, GRANTED, 3), ticket(6, "right", 0, None)],
            LINES,
            "all or none",
            id="never both at one moment",
        ),
        pytest.param(
            [*TICKETS[:4], ticket(5, "left", 0, None), TICKETS[4]], LINES, "all or none", id="one taken from a holder"
        ),
        pytest.param(TICKETS[:5], LINES, "none is kept", id="one is left"),
        pytest.param(
            [*TICKETS[:5], ticket(8, "left", 8, WAITING), ticket(8, "right", 8, WAITING)],
            LINES,
            "none is kept",
            id="one is left beside the next acquire",
        ),
    ],
)
def test_a_half_is_noticed(tickets: list[Seen], lines: list[Line], promise: str) -> None:
    assert promise in wrong(tickets, lines)
