# SPDX-License-Identifier: Apache-2.0
"""Who is served next: only ever the first of the queue that is eligible now."""

from __future__ import annotations

from itertools import takewhile

from coordinator.decide.view import GroupView
from ledger.kept import Kept
from ledger.records import Ticket, Turn

AGING_TURNS = 8
"""With the policy `aging`: how many grants in a row may go past an earlier ticket of a lower priority."""


def head_of(view: GroupView, turn: Turn, *, beside: str = "") -> Kept[Ticket] | None:
    """The first WAITING ticket, of another job than ``beside``. While a job is pinned only its own is eligible."""
    if turn.pinned is not None:
        own = view.waits(turn.pinned.job)
        return own if own and own.name != beside and _eligible(view, turn, own) else None
    aged = _ages(view) and turn.passed_over >= AGING_TURNS
    order = view.tickets.by_age if aged else view.tickets.waiting
    return next((one for one in order.values() if one.name != beside and _eligible(view, turn, one)), None)


def passed_over(view: GroupView, turn: Turn, granted: Kept[Ticket]) -> int:
    """What `Turn.passed_over` is once this ticket has been granted."""
    if not _ages(view):
        return 0
    earlier = takewhile(lambda one: one.create < granted.create, view.tickets.by_age.values())
    return turn.passed_over + 1 if any(_eligible(view, turn, one) for one in earlier) else 0


def pinned_for_several(turn: Turn, job: str, ticket: Ticket) -> str | None:
    """Why a ticket for several groups cannot be served: its job is pinned here (rule 29). None if it can.

    Only a pinned job's own tickets are served. If it also waited elsewhere, behind one that waits for this group, the
    two would wait for each other.
    """
    if len(ticket.groups) > 1 and turn.pinned is not None and turn.pinned.job == job:
        return f"Job {job} is pinned ({turn.pinned.reason}), so it can have no turns in several groups at once."
    return None


def _ages(view: GroupView) -> bool:
    policy = view.spec.value.policy if view.spec else None
    return policy is not None and policy.aging


def _eligible(view: GroupView, turn: Turn, ticket: Kept[Ticket]) -> bool:
    return (not turn.pinned or ticket.name == turn.pinned.job) and view.quarantined(ticket.name) is None
