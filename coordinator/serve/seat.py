# SPDX-License-Identifier: Apache-2.0
"""One acquire, from the request to the end of its turn, and what its client is to be told of it. No input or output.

What is told comes from the ticket's own key: a grant is told only once the watch has shown it, or the transaction
that made it has succeeded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from coordinator.decide.switch import answers
from coordinator.errors import KINDS
from coordinator.picture import Picture
from coordinator.serve.messages import to_message
from ledger.kept import Kept
from ledger.records import Ended, Phase, ResidentKind, Ticket, TicketState, Turn
from timeslice_proto.v1 import coordinator_pb2, records_pb2

PROGRESS_EVERY = 1.0
"""Seconds between two positions of one acquire, at least."""

SWITCHING = (Phase.PREPARING, Phase.COMMITTING, Phase.RELEASING)

Event = coordinator_pb2.SessionEvent
_Told = tuple[object, ...]


class Stage(Enum):
    ASKING = auto()  # it has no ticket yet, as far as this replica knows
    QUEUED = auto()
    HELD = auto()
    OVER = auto()  # its last event has been given


@dataclass(slots=True)
class Seat:
    """One acquire. Times are seconds of one monotonic clock.

    Attributes:
        since: when it was asked for, here.
        revision: the ticket is there from this revision on; a picture that is older says nothing of it.
        token: of its turn, once granted.
        leaving: it is being given back: that its ticket goes is no loss.
    """

    session: str
    sequence: int
    job: str
    group: str
    since: float
    stage: Stage = Stage.ASKING
    revision: int = 0
    token: int = 0
    leaving: bool = False
    _told: _Told = field(default=())
    _told_at: float = -PROGRESS_EVERY
    _untold: bool = False

    def seated(self, revision: int) -> None:
        """Its ticket was made at, or found by, this revision."""
        self.stage, self.revision = Stage.QUEUED, revision

    def holds(self, token: int, revision: int) -> None:
        """Its turn has this token: the client was told before it came here."""
        self.stage, self.token, self.revision = Stage.HELD, token, revision

    def tell_again(self) -> None:
        """The client has asked again: it is to be told where it stands."""
        self._told, self._told_at, self._untold = (), -PROGRESS_EVERY, False
        if self.stage is Stage.HELD:
            self.stage = Stage.QUEUED

    def look(self, picture: Picture, now: float) -> Event | None:
        """What the client is to be told now. Grants, ends and its own switch at once, its place once a second."""
        if self.stage in (Stage.ASKING, Stage.OVER) or self.leaving or picture.revision < self.revision:
            return None
        ticket = picture.queue(self.group).get(self.job)
        if ticket is not None and (ticket.value.session, ticket.value.sequence) == (self.session, self.sequence):
            return self._at_ticket(picture, ticket, now)
        return self._gone(picture)

    def due_in(self, now: float) -> float | None:
        """Seconds until its place may be told, which has changed since; None if there is nothing to tell."""
        return max(0.0, self._told_at + PROGRESS_EVERY - now) if self._untold else None

    def _at_ticket(self, picture: Picture, ticket: Kept[Ticket], now: float) -> Event | None:
        match ticket.value.state:
            case TicketState.GRANTED if self.stage is Stage.HELD and self.token == ticket.value.token:
                return None
            case TicketState.GRANTED if self.stage is Stage.HELD:
                return self._lost(picture)
            case TicketState.GRANTED:
                self.stage, self.token = Stage.HELD, ticket.value.token
                return self._granted(ticket.value, now)
            case TicketState.REFUSED:
                self.stage = Stage.OVER
                return refused(self.sequence, ticket.value.reason, ticket.value.why, self._about())
            case TicketState.WAITING:
                return self._progress(picture, ticket, now)

    def _granted(self, ticket: Ticket, now: float) -> Event:
        grant = coordinator_pb2.GroupGrant(
            group=self.group,
            token=ticket.token,
            restored=ticket.restored,
            lost=[to_message(one, records_pb2.Process) for one in ticket.lost],
        )
        waited = round((now - self.since) * 1000)
        return Event(granted=coordinator_pb2.Granted(sequence=self.sequence, grants=[grant], waited_ms=waited))

    def _progress(self, picture: Picture, ticket: Kept[Ticket], now: float) -> Event | None:
        kept = picture.turn(self.group)
        turn = kept.value if kept is not None else Turn()
        own_switch = (
            turn.phase in SWITCHING and turn.incoming is not None and turn.incoming.ticket_revision == ticket.create
        )
        told = self._switching(picture, turn) if own_switch else self._queued(picture, ticket)
        self._untold = told != self._told and not own_switch and now < self._told_at + PROGRESS_EVERY
        if told == self._told or self._untold:
            return None
        self._told, self._told_at = told, now
        match told:
            case (Phase() as phase, int(epoch), int(nodes), int(answered)):
                switching = coordinator_pb2.Switching(
                    sequence=self.sequence,
                    group=self.group,
                    phase=records_pb2.Phase.Value(phase.value),
                    epoch=epoch,
                    nodes=nodes,
                    answered=answered,
                )
                return Event(switching=switching)
            case (int(position), str(note)):
                return queued(self.sequence, self.group, position, note)
            case _:
                return None

    def _switching(self, picture: Picture, turn: Turn) -> _Told:
        view = picture.group(self.group)
        answered = len(answers(view, turn)) if view is not None else 0
        return (turn.phase, turn.epoch, len(turn.nodes), answered)

    def _queued(self, picture: Picture, ticket: Kept[Ticket]) -> _Told:
        """The place among those who wait."""
        return (picture.queue(self.group).ahead(ticket) + 1, picture.note(self.group))

    def _gone(self, picture: Picture) -> Event | None:
        if self.stage is not Stage.HELD:
            # While its session lives, only an operator takes away the ticket of one that waits, or the client itself
            # by another call.
            self.stage = Stage.OVER
            message = f"The place of job {self.job} in group {self.group} was taken away."
            return refused(self.sequence, "EVICTED", message, self._about())
        kept = picture.turn(self.group)
        if kept is not None and kept.value.yielded_token == self.token:
            self.stage = Stage.OVER  # given back, by another call of the same client
            return None
        return self._lost(picture)

    def _lost(self, picture: Picture) -> Event:
        """Its turn is over although its session lives."""
        self.stage = Stage.OVER
        kept = picture.turn(self.group)
        resident = kept.value.resident if kept is not None else None
        evicted = (
            kept is not None
            and kept.value.token == self.token
            and resident is not None
            and (resident.kind, resident.job, resident.ended) == (ResidentKind.JOB, self.job, Ended.LOST)
        )
        what = f"The turn of job {self.job} in group {self.group} (token {self.token})"
        lost = coordinator_pb2.Lost(
            sequence=self.sequence,
            group=self.group,
            token=self.token,
            reason="EVICTED" if evicted else "TURN_LOST",
            message=f"{what} was taken away by an operator." if evicted else f"{what} is over: its ticket is gone.",
        )
        return Event(lost=lost)

    def _about(self) -> dict[str, str]:
        return {"group": self.group, "job": self.job}


def queued(sequence: int, group: str, position: int, note: str) -> Event:
    return Event(queued=coordinator_pb2.Queued(sequence=sequence, group=group, position=position, note=note))


def refused(sequence: int, reason: str, message: str, metadata: dict[str, str] | None = None) -> Event:
    """A refusal of one request of a stream. A reason that this version does not know is passed on as it is."""
    code = KINDS[reason].status.value[0] if reason in KINDS else KINDS["INTERNAL"].status.value[0]
    one = coordinator_pb2.Refused(sequence=sequence, code=code, reason=reason, message=message, metadata=metadata or {})
    return Event(refused=one)
