# SPDX-License-Identifier: Apache-2.0
"""The tickets of one group, in the order in which they are served. Immutable: a change makes another queue.

Kept in order change by change, so that whoever is next is at hand however many wait (protocol rule 36).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from ledger.kept import Kept
from ledger.ordered import Ordered
from ledger.records import Ticket, TicketState

Place = tuple[int, int, str]


class Queue(Struct, frozen=True):
    """Every ticket by its job, and those that wait in order.

    Attributes:
        by_job: all tickets.
        waiting: those that are WAITING, in the order in which they are to be served.
        by_age: the same in the order in which they came, whatever their priority.
        granted: those that are GRANTED: one, as a rule.
    """

    by_job: Ordered[str, Kept[Ticket]] = field(default_factory=Ordered)
    waiting: Ordered[Place, Kept[Ticket]] = field(default_factory=Ordered)
    by_age: Ordered[Place, Kept[Ticket]] = field(default_factory=Ordered)
    granted: tuple[Kept[Ticket], ...] = ()

    @classmethod
    def of(cls, tickets: Iterable[Kept[Ticket]]) -> Queue:
        queue = cls()
        for ticket in tickets:
            queue = queue.put(ticket)
        return queue

    def __len__(self) -> int:
        return len(self.by_job)

    def get(self, job: str) -> Kept[Ticket] | None:
        return self.by_job.get(job)

    def ahead(self, ticket: Kept[Ticket]) -> int:
        """How many tickets that wait are before this one."""
        return self.waiting.rank(_place(ticket))

    def in_order(self) -> tuple[Kept[Ticket], ...]:
        """Every ticket, also those that do not wait, by their places. It takes the time to sort them all."""
        return tuple(sorted(self.by_job.values(), key=_place))

    def put(self, ticket: Kept[Ticket]) -> Queue:
        """With this ticket, in place of an older one of its job."""
        left = self.without(ticket.name)
        by_job, waiting, by_age, granted = left.by_job.put(ticket.name, ticket), left.waiting, left.by_age, left.granted
        match ticket.value.state:
            case TicketState.WAITING:
                waiting, by_age = waiting.put(_place(ticket), ticket), by_age.put(_age(ticket), ticket)
            case TicketState.GRANTED:
                granted = (*granted, ticket)
            case TicketState.REFUSED:
                pass
        return Queue(by_job, waiting, by_age, granted)

    def without(self, job: str) -> Queue:
        """Without the ticket of this job, if it has one."""
        old = self.by_job.get(job)
        if old is None:
            return self
        return Queue(
            self.by_job.without(job),
            self.waiting.without(_place(old)),
            self.by_age.without(_age(old)),
            tuple(one for one in self.granted if one is not old),
        )


def _place(ticket: Kept[Ticket]) -> Place:
    """Its priority, then its create revision, then its key."""
    return (-ticket.value.priority, ticket.create, ticket.name)


def _age(ticket: Kept[Ticket]) -> Place:
    return (0, ticket.create, ticket.name)
