# SPDX-License-Identifier: Apache-2.0
"""Who is served next: only ever the first of the queue that is eligible now."""

from __future__ import annotations

from coordinator.decide.view import GroupView
from ledger.kept import Kept
from ledger.records import Ticket, Turn


def head_of(view: GroupView, turn: Turn, *, beside: str = "") -> Kept[Ticket] | None:
    """The first WAITING ticket, of another job than ``beside``. While a job is pinned only its own is eligible."""
    for ticket in view.waiting():
        if ticket.name == beside or (turn.pinned and ticket.name != turn.pinned.job):
            continue
        if view.quarantined(ticket.name) is None:
            return ticket
    return None
