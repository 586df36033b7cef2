# SPDX-License-Identifier: Apache-2.0
"""One acquire as its client sees it: a seat in each of its groups, granted all together or not at all (rule 29).

Each group grants by its own turn; the client is told once all have. What ends one seat before that ends the whole
acquire, and then the caller gives back the other seats. No input or output.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.picture import Picture
from coordinator.serve.seat import Event, Seat, Stage, refused
from timeslice_proto.v1 import coordinator_pb2


class Party:
    """
    Attributes:
        seats: by group; one that was given back has left.
        failure: what the client is to be told once nothing is left of an acquire of several groups, which one of
            them has ended.
    """

    def __init__(self, session: str, sequence: int, job: str, groups: Iterable[str], since: float) -> None:
        self.session, self.sequence, self.job, self.since = session, sequence, job, since
        self.seats = {group: Seat(session, sequence, job, group, since) for group in groups}
        self.failure: Event | None = None
        self._several = len(self.seats) > 1
        self._grants: dict[str, coordinator_pb2.GroupGrant] = {}
        self._told = False  # that it is granted

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(self.seats)

    @property
    def asking(self) -> bool:
        """It has no ticket yet, as far as this replica knows."""
        return any(seat.stage is Stage.ASKING for seat in self.seats.values())

    @property
    def over(self) -> bool:
        """Its last event has been given."""
        return all(seat.stage is Stage.OVER for seat in self.seats.values())

    def leave(self, *, leaving: bool = True) -> None:
        """It is being given back: that its tickets go is no loss."""
        for seat in self.seats.values():
            seat.leaving = leaving

    def seated(self, revision: int) -> None:
        """Its tickets were made at, or found by, this revision."""
        for seat in self.seats.values():
            seat.seated(revision)

    @property
    def granted_at_once(self) -> bool:
        """Its client is still to be told that the transaction which made its ticket has granted it."""
        return bool(self._grants) and not self._told

    def granted(self, group: str, token: int) -> None:
        """The transaction by which it was `seated` has granted it: nothing had to move, and nobody waited."""
        seat = self.seats[group]
        seat.holds(token, seat.revision)
        self._grants[group] = coordinator_pb2.GroupGrant(group=group, token=token)

    def holds(self, group: str, token: int, revision: int) -> None:
        """Its turn in the group has this token: the client was told before it came here."""
        seat = self.seats[group] = Seat(self.session, self.sequence, self.job, group, self.since)
        seat.holds(token, revision)
        self._several, self._told = len(self.seats) > 1, True

    def tell_again(self) -> None:
        """The client has asked again: it is to be told where it stands."""
        self._told = False
        self._grants.clear()
        for seat in self.seats.values():
            seat.tell_again()

    def due_in(self, now: float) -> float | None:
        """Seconds until progress may be told; None if there is none to tell."""
        waits = (seat.due_in(now) for seat in self.seats.values() if seat.stage is Stage.QUEUED)
        return min((wait for wait in waits if wait is not None), default=None)

    def look(self, picture: Picture, now: float) -> list[Event]:
        """What the client is to be told now; nothing any more once there is a `failure`."""
        if self.failure is not None:
            return []
        told: list[Event] = []
        for group, seat in self.seats.items():
            event = seat.look(picture, now)
            match event.WhichOneof("event") if event is not None else None:
                case "granted":
                    assert event is not None
                    self._grants[group] = event.granted.grants[0]
                case "refused" if self._several:
                    assert event is not None
                    self.failure = event
                case "lost" if self._several and not self._told:
                    assert event is not None
                    self.failure = refused(self.sequence, event.lost.reason, event.lost.message, self._about(group))
                case None:
                    pass
                case _:
                    assert event is not None
                    told.append(event)
            if self.failure is not None:
                return told
        if not self._told and self.seats and len(self._grants) == len(self.seats):
            self._told = True
            # First of all: what was granted by its own transaction may be lost already.
            told.insert(0, self._granted(now))
        return told

    def _granted(self, now: float) -> Event:
        waited = round((now - self.since) * 1000)
        grants = list(self._grants.values())
        return Event(granted=coordinator_pb2.Granted(sequence=self.sequence, grants=grants, waited_ms=waited))

    def _about(self, group: str) -> dict[str, str]:
        return {"group": group, "job": self.job}
