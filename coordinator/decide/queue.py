# SPDX-License-Identifier: Apache-2.0
"""Who is served next: only ever the first of the queue that is eligible now."""

from __future__ import annotations

from coordinator.decide.view import GroupView
from ledger.kept import Kept
from ledger.records import Ticket, Turn

AGING_TURNS = 8
"""With the policy `aging`: how many grants in a row may go past an earlier ticket of a lower priority."""


def head_of(view: GroupView, turn: Turn, *, beside: str = "") -> Kept[Ticket] | None:
    """The first WAITING ticket, of another job than ``beside``. While a job is pinned only its own is eligible."""
    eligible = (one for one in view.waiting() if one.name != beside and _eligible(view, turn, one))
    if _ages(view) and turn.passed_over >= AGING_TURNS:
        return min(eligible, key=lambda one: (one.create, one.name), default=None)
    return next(eligible, None)


def passed_over(view: GroupView, turn: Turn, granted: Kept[Ticket]) -> int:
    """What `Turn.passed_over` is once this ticket has been granted."""
    if not _ages(view):
        return 0
    earlier = (one for one in view.waiting() if one.create < granted.create and _eligible(view, turn, one))
    return turn.passed_over + 1 if any(earlier) else 0


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
