# SPDX-License-Identifier: Apache-2.0
"""A coordinator that a schedule drives by hand: sessions with leases, one group's queue, and streams that break.

It does what the real one promises and no more. A message arrives in order within its acquire; what is in flight when
a stream breaks is lost, or arrives when nobody counts on it any more. etcd ends a lease never before its time, and as
late as it likes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from timeslice_proto.v1 import coordinator_pb2 as pb

TTL = 9.0
GROUP = "g"


@dataclass(frozen=True, slots=True)
class Seat:
    """A ticket: ``token`` 0 while it waits."""

    session: str
    sequence: int
    job: str
    token: int = 0


@dataclass(slots=True)
class Stream:
    """One stream: what is on its way up and down, and the session that it serves."""

    session: str = ""
    up: list[pb.SessionRequest] = field(default_factory=list)
    down: list[pb.SessionEvent] = field(default_factory=list)
    told: list[pb.SessionEvent] = field(default_factory=list)
    ended: bool = False


class FakeCoordinator:
    """All replicas and etcd in one.

    Attributes:
        leases: when each session's lease may end, by the time that it is told; s.
        queue: the tickets, in order.
        told_wanted: what the last beat named.
    """

    def __init__(self) -> None:
        self.leases: dict[str, float] = {}
        self.queue: list[Seat] = []
        self.token = 0
        self.told_wanted: Collection[int] = ()
        self._sessions = 0

    # ------------------------------------------------------------ what a schedule chooses

    def ready(self, stream: Stream) -> list[int]:
        """Which requests may be the next: the first of each acquire, but a greeting comes before all."""
        if not stream.session:
            return [0] if stream.up else []
        seen: set[int] = set()
        found = []
        for place, request in enumerate(stream.up):
            sequence = _sequence(request)
            if sequence not in seen:
                found.append(place)
            seen.add(sequence)
        return found

    def serve(self, stream: Stream, place: int, now: float) -> None:
        """Carry out one request."""
        request = stream.up.pop(place)
        match request.WhichOneof("request"):
            case "open":
                self._open(stream, now)
            case "resume":
                self._resume(stream, request.resume)
            case "beat":
                self._beat(stream, request.beat, now)
            case "acquire":
                self._acquire(stream, request.acquire)
            case "yield":
                self._yield(stream, getattr(request, "yield"))
            case "cancel":
                sequence = request.cancel.sequence
                self._drop(stream.session, [sequence])
                self._tell(stream, cancelled=pb.Cancelled(sequence=sequence))
            case _:
                self._drop(stream.session, [one.sequence for one in self.queue if one.session == stream.session])
                self.leases.pop(stream.session, None)
                self._tell(stream, closed=pb.Closed())

    def refuse(self, stream: Stream, place: int) -> None:
        """etcd is away for a moment: an acquire or a yield is not carried out, and that is said."""
        sequence = _sequence(stream.up.pop(place))
        self._tell(stream, refused=pb.Refused(sequence=sequence, reason="STORE_UNAVAILABLE", message="etcd is away"))

    def ignore(self, stream: Stream, place: int) -> None:
        """A beat that etcd does not confirm is not answered."""
        stream.up.pop(place)

    def grant(self, streams: Iterable[Stream]) -> None:
        """Serve the head, if nobody is on."""
        if self.queue and not any(one.token for one in self.queue):
            self.token += 1
            self.queue[0] = replace(self.queue[0], token=self.token)
            for stream in streams:
                self._tell_granted(stream, self.queue[0])

    def evict(self, streams: Iterable[Stream]) -> None:
        """Take the turn from its holder."""
        for one in [one for one in self.queue if one.token]:
            self.queue.remove(one)
            for stream in streams:
                if stream.session == one.session:
                    self._tell(stream, lost=pb.Lost(sequence=one.sequence, reason="EVICTED", message="evicted"))

    def expire(self, now: float) -> None:
        """End every lease whose time has come, with its tickets."""
        for session in [session for session, end in self.leases.items() if end <= now]:
            del self.leases[session]
            self._drop(session, [one.sequence for one in self.queue if one.session == session])

    # ------------------------------------------------------------ requests

    def _open(self, stream: Stream, now: float) -> None:
        self._sessions += 1
        stream.session = f"s{self._sessions}"
        self.leases[stream.session] = now + TTL
        self._tell(stream, opened=pb.Opened(session=stream.session, secret="secret", ttl_ms=int(TTL * 1000)))

    def _resume(self, stream: Stream, resume: pb.ResumeSession) -> None:
        if resume.session not in self.leases:
            stream.ended = True
            return
        stream.session = resume.session
        self._tell(stream, opened=pb.Opened(session=resume.session, ttl_ms=int(TTL * 1000), resumed=True))
        known = {one.sequence for one in resume.wanted} | {one.sequence for one in resume.held}
        self._prune(resume.session, resume.last_sequence, known)
        for held in resume.held:
            if Seat(resume.session, held.sequence, held.job, held.token) not in self.queue:
                self._tell(stream, lost=pb.Lost(sequence=held.sequence, reason="TURN_LOST", message="gone"))
        for wanted in resume.wanted:
            self._acquire(stream, wanted)

    def _beat(self, stream: Stream, beat: pb.BeatRequest, now: float) -> None:
        if stream.session not in self.leases:
            self._tell(stream, lost=pb.Lost(sequence=0, message="its lease has ended"))
            return
        self.leases[stream.session] = now + TTL
        self._tell(stream, beat=pb.BeatConfirmed(number=beat.number, ttl_ms=int(TTL * 1000)))
        self.told_wanted = tuple(beat.wanted)
        self._prune(stream.session, beat.last_sequence, beat.wanted)

    def _acquire(self, stream: Stream, acquire: pb.AcquireRequest) -> None:
        session, sequence = stream.session, acquire.sequence
        if session not in self.leases:
            self._tell(stream, lost=pb.Lost(sequence=0, message="its lease has ended"))
            return
        there = next((one for one in self.queue if one.job == acquire.job), None)
        if there is None:
            self.queue.append(Seat(session, sequence, acquire.job))
            self._tell(stream, queued=pb.Queued(sequence=sequence, group=GROUP, position=len(self.queue) - 1))
        elif (there.session, there.sequence) != (session, sequence):
            self._tell(stream, refused=pb.Refused(sequence=sequence, reason="ALREADY_QUEUED", message="another"))
        elif there.token:
            self._tell_granted(stream, there)

    def _yield(self, stream: Stream, given: pb.YieldRequest) -> None:
        seat = Seat(stream.session, given.sequence, given.job, given.token)
        if seat in self.queue:
            self.queue.remove(seat)
            self._tell(stream, yielded=pb.Yielded(sequence=given.sequence, group=GROUP, waiters=len(self.queue)))
        else:
            self._tell(stream, refused=pb.Refused(sequence=given.sequence, reason="STALE_TOKEN", message="old"))

    # ------------------------------------------------------------ inside

    def _prune(self, session: str, last_sequence: int, wanted: Collection[int]) -> None:
        self._drop(
            session,
            [one.sequence for one in self.queue if one.sequence <= last_sequence and one.sequence not in wanted],
        )

    def _drop(self, session: str, sequences: Collection[int]) -> None:
        self.queue = [one for one in self.queue if one.session != session or one.sequence not in sequences]

    def _tell_granted(self, stream: Stream, seat: Seat) -> None:
        if stream.session == seat.session:
            grant = pb.GroupGrant(group=GROUP, token=seat.token)
            self._tell(stream, granted=pb.Granted(sequence=seat.sequence, grants=[grant]))

    def _tell(self, stream: Stream, **event: object) -> None:
        told = pb.SessionEvent(**event)  # type: ignore[arg-type]
        stream.down.append(told)
        stream.told.append(told)


def _sequence(request: pb.SessionRequest) -> int:
    """Of the acquire that it is about; 0: of none."""
    body = getattr(request, str(request.WhichOneof("request")))
    return int(getattr(body, "sequence", 0))
