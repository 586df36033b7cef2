# SPDX-License-Identifier: Apache-2.0
"""Whether an acquire of several groups got all or kept none (rule 29): pure functions over tickets and jobs' lines.

What is promised: its places are taken in all queues at one moment; its job is told once all have granted, and at that
moment it has all; what ends one of its tickets ends the others. It is not promised that the groups grant at the same
time: each does by its own turn, and until the last has, the first is held for a job that still waits.

All is told by etcd's revisions, but for one thing: a ticket that was seen to be gone before its job began to give back.
An observer sees late and never early, so that it was gone is certain then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from chaos.checkers import Violation
from chaos.dev.lines import Granted, Line, Yielded
from chaos.observer import Seen
from ledger.records import TicketState


@dataclass(slots=True)
class Seat:
    """One ticket's grant and its end, each by the revision and when it was seen (ns); 0: it did not come to that."""

    token: int = 0
    granted: int = 0
    granted_at: int = 0
    gone: int = 0
    gone_at: int = 0


@dataclass(slots=True)
class Acquire:
    """One acquire of several groups: its seat in each; ``place``: the create revision of its tickets."""

    job: str
    place: int
    wanted: frozenset[str]
    seats: dict[str, Seat] = field(default_factory=dict)

    @property
    def tokens(self) -> dict[str, int]:
        return {group: seat.token for group, seat in self.seats.items() if seat.granted}

    @property
    def held(self) -> bool:
        """Whether there was a moment at which it had all. Of one at rest only."""
        every = self.seats.values()
        ends = [seat.gone for seat in every if seat.gone]
        return len(self.tokens) == len(self.wanted) and (not ends or max(seat.granted for seat in every) < min(ends))

    def __str__(self) -> str:
        return f"the acquire of {' and '.join(sorted(self.wanted))} by {self.job} (place {self.place})"


def acquires(tickets: Iterable[Seen]) -> list[Acquire]:
    """Those of several groups, by their places. ``tickets``: of all groups, each in the order of its revisions."""
    now: dict[tuple[str, str], Seat] = {}
    found: dict[tuple[str, int], Acquire] = {}
    for one in tickets:
        key, ticket = (one.place.group, one.place.name), one.ticket
        if ticket is None:
            if (gone := now.pop(key, None)) is not None:
                gone.gone, gone.gone_at = one.revision, one.mono
            continue
        if len(ticket.groups) < 2:
            continue
        job, group = one.place.name, one.place.group
        acquire = found.setdefault((job, one.create), Acquire(job, one.create, frozenset(ticket.groups)))
        seat = now[key] = acquire.seats.setdefault(group, Seat())
        if ticket.state is TicketState.GRANTED and not seat.granted:
            seat.token, seat.granted, seat.granted_at = ticket.token, one.revision, one.mono
    return sorted(found.values(), key=lambda acquire: acquire.place)


def together(found: Sequence[Acquire], jobs: Mapping[str, Sequence[Line]]) -> list[Violation]:
    """All violations of rule 29. ``jobs``: what was reported by those that nobody harmed, all at rest by now."""
    return [*_one_moment(found), *_told_of_all(found, jobs), *_none_kept(found)]


def _one_moment(found: Sequence[Acquire]) -> Iterator[Violation]:
    """A place in all queues, by one transaction: tickets made by two have two places."""
    for one in found:
        if one.seats.keys() != one.wanted:
            yield Violation("all or none", f"{one} took its place in {_names(one.seats)} alone")


def _told_of_all(found: Sequence[Acquire], jobs: Mapping[str, Sequence[Line]]) -> Iterator[Violation]:
    """Each grant that a job was told of is that of one acquire, with all that it asked for, all in force at once."""
    by_tokens = {(one.job, frozenset(one.tokens.items())): one for one in found}
    for job, lines in jobs.items():
        for line in lines:
            if not isinstance(line, Granted | Yielded) or not line.tokens:
                continue
            one = by_tokens.get((job, frozenset(line.tokens.items())))
            told = f"{job} was told that it has {_tokens(line.tokens)}"
            if one is None or line.tokens.keys() != one.wanted:
                yield Violation("all or none", f"{told}: no acquire of it was granted so, and no more")
            elif not one.held:
                yield Violation("all or none", f"{told}: never all at one moment, in {one}")
            elif isinstance(line, Yielded):
                for group, seat in one.seats.items():
                    if seat.gone and seat.gone_at < line.yielding:
                        yield Violation("all or none", f"{group} was taken from {job}, which held the others: {one}")


def _none_kept(found: Sequence[Acquire]) -> Iterator[Violation]:
    """Nothing is left of an acquire in one group that has ended in another: not at the end, nor beside the next one."""
    for one in found:
        kept = [group for group, seat in one.seats.items() if not seat.gone]
        if kept and len(kept) < len(one.wanted):
            yield Violation("none is kept", f"{one} ended, and left its ticket in {_names(kept)}")
    for job in {one.job for one in found}:
        for before, after in pairwise(one for one in found if one.job == job):
            late = [group for group, seat in before.seats.items() if not seat.gone or seat.gone > after.place]
            if late:
                yield Violation("none is kept", f"{before} was still in {_names(late)} when {after} began")


def _names(groups: Iterable[str]) -> str:
    return ", ".join(sorted(groups))


def _tokens(tokens: Mapping[str, int]) -> str:
    return " and ".join(f"{group} (token {token})" for group, token in sorted(tokens.items()))
