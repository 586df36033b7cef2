# SPDX-License-Identifier: Apache-2.0
"""Whether the promises were held: pure functions over the evidence of a run.

The devices' log says what ran and which bytes came back; etcd's own revisions say who had which place; what jobs and
replicas believe about themselves counts for nothing, but for what a job complains of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from chaos.dev.lines import Asked, Granted, Line, Trouble, Yielded
from chaos.history import Recorded
from chaos.observer import Seen
from ledger.records import Phase, TicketState
from nodeagent.backends.sim import log as devicelog

_MS = 1_000_000

LONGEST_WAIT = 60.0
"""Seconds from asking to the grant, whatever is done to the system: far more than it takes, on a slow machine too."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a run has left.

    Attributes:
        devices: by node, what its devices logged.
        turns: the history of the one group.
        tickets: of it, by revision.
        jobs: what each reported.
        excused: jobs that were harmed themselves: their troubles, and tickets that went, are no violation.
    """

    devices: Mapping[str, Sequence[devicelog.Event]]
    turns: Sequence[Recorded]
    tickets: Sequence[Seen]
    jobs: Mapping[str, Sequence[Line]] = field(default_factory=dict)
    excused: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was not held, and the evidence for it."""

    promise: str
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


def judge(evidence: Evidence) -> list[Violation]:
    """All violations, of every promise."""
    return [
        *overlaps(evidence),
        *lost_state(evidence),
        *interrupted_turns(evidence),
        *numbers(evidence),
        *order(evidence),
        *lost_places(evidence),
        *troubles(evidence),
        *delays(evidence),
    ]


def overlaps(evidence: Evidence) -> Iterator[Violation]:
    """At most one job is able to run on the group's devices of a node, at every moment.

    A process that belongs to no job is not the lock's to move: a node that finds one refuses, and blocks its group.
    """
    for node, events in evidence.devices.items():
        for one in devicelog.overlaps([event for event in events if event.job]):
            both = f"{one.first.job} and {one.second.job}"
            took = (one.end - one.begin) / _MS
            yield Violation("one at a time", f"{both} were both able to run on {node} for {took:.3f} ms")


def lost_state(evidence: Evidence) -> Iterator[Violation]:
    """Every byte comes back as it was saved."""
    for node, events in evidence.devices.items():
        for one in devicelog.lost_bytes(events):
            yield Violation("state is kept", f"bytes of {one.saved.job} changed between save and restore on {node}")
    for job, lines in evidence.jobs.items():
        for line in lines:
            if isinstance(line, Yielded) and not line.intact:
                yield Violation("state is kept", f"{job} found its state changed in the turn of token {line.token}")


def interrupted_turns(evidence: Evidence) -> Iterator[Violation]:
    """From its grant to its last kernel a holder is never stopped, and nobody else is able to run.

    Looked at for turns that ended well: those that were lost are meant to be interrupted.
    """
    for node, events in evidence.devices.items():
        kernels, able = devicelog.kernels(events), devicelog.able_to_run(events)
        stops = [event for event in events if event.name == "stop" and event.why != "freed"]
        for job, lines in evidence.jobs.items():
            own = [one for one in kernels if one.job == job]
            for turn in (line for line in lines if isinstance(line, Yielded)):
                last = max((one.end for one in own if turn.granted <= one.begin and one.end <= turn.mono), default=0)
                for event in stops:
                    if event.job == job and turn.granted < event.at < last:
                        what = f"{job} was stopped on {node} ({event.why}) while it held token {turn.token}"
                        yield Violation("the holder runs", what)
                for one in able:
                    if one.job not in ("", job) and one.begin < last and one.end > turn.granted:
                        what = f"{one.job} was able to run on {node} while {job} held token {turn.token}"
                        yield Violation("the holder alone", what)


def numbers(evidence: Evidence) -> Iterator[Violation]:
    """Tokens are given out once, and neither they nor epochs ever fall; jobs were told the tokens of the turn."""
    token = epoch = 0
    given: set[int] = set()
    phase = Phase.IDLE
    for one in evidence.turns:
        turn = one.turn
        if turn is None:
            continue
        if turn.token < token or turn.epoch < epoch:
            what = f"token {token} and epoch {epoch} became {turn.token} and {turn.epoch} at revision {one.revision}"
            yield Violation("numbers grow", what)
        if turn.phase is Phase.HELD and phase is not Phase.HELD:
            if turn.token in given:
                yield Violation("numbers grow", f"token {turn.token} was given out twice")
            given.add(turn.token)
        token, epoch, phase = turn.token, turn.epoch, turn.phase
    for job, lines in evidence.jobs.items():
        for line in lines:
            if isinstance(line, Granted) and line.token not in given:
                yield Violation("numbers grow", f"{job} holds token {line.token}, which no turn has given out")


@dataclass(frozen=True, slots=True)
class Place:
    """A ticket's life, as far as it was seen. Revisions; 0: it did not come to that."""

    job: str
    create: int
    granted: int = 0
    refused: int = 0
    gone: int = 0
    priority: int = 0


def places(tickets: Sequence[Seen]) -> list[Place]:
    """Each ticket's life, in the order of their places."""
    now: dict[str, Place] = {}
    past: list[Place] = []
    for one in tickets:
        job, ticket = one.place.name, one.ticket
        if ticket is None:
            if job in now:
                found = now.pop(job)
                past.append(Place(job, found.create, found.granted, found.refused, one.revision, found.priority))
            continue
        before = now.get(job)
        granted, refused = (before.granted, before.refused) if before else (0, 0)
        if ticket.state is TicketState.GRANTED:
            granted = granted or one.revision
        if ticket.state is TicketState.REFUSED:
            refused = refused or one.revision
        now[job] = Place(job, one.create, granted, refused, 0, ticket.priority)
    return sorted((*past, *now.values()), key=lambda place: place.create)


def order(evidence: Evidence) -> Iterator[Violation]:
    """At a grant nobody of that priority, or of a higher one, has an earlier place and still waits.

    A higher priority that came after the switch had begun does not count: the incoming ticket is fixed then. And while
    a job is pinned, because it cannot be taken off the devices, its own tickets alone are served.
    """
    every = places(evidence.tickets)
    for one in every:
        if not one.granted or one.job == _pinned(evidence.turns, one.granted):
            continue
        for other in every:
            earlier = other.create < one.create and other.priority >= one.priority
            left = min((at for at in (other.granted, other.refused, other.gone) if at), default=None)
            if earlier and (left is None or left > one.granted):
                what = f"{one.job} (place {one.create}) was granted before {other.job} (place {other.create})"
                yield Violation("no place lost", what)


def _pinned(turns: Sequence[Recorded], revision: int) -> str:
    """The job that was pinned just before this revision; empty: none."""
    before = [one.turn for one in turns if one.revision < revision]
    pinned = before[-1].pinned if before and before[-1] else None
    return pinned.job if pinned else ""


def lost_places(evidence: Evidence) -> Iterator[Violation]:
    """A ticket leaves the queue by a grant or by its owner's will: of a job that nobody harmed, by nothing else."""
    for one in places(evidence.tickets):
        if one.job in evidence.excused:
            continue
        if one.gone and not one.granted:
            yield Violation("no place lost", f"the ticket of {one.job} (place {one.create}) went without a grant")
        if one.refused:
            yield Violation("no place lost", f"the ticket of {one.job} (place {one.create}) was refused")


def troubles(evidence: Evidence) -> Iterator[Violation]:
    """A job that nobody harmed sees nothing of it."""
    for job, lines in evidence.jobs.items():
        for line in lines if job not in evidence.excused else ():
            if isinstance(line, Trouble):
                yield Violation("jobs see nothing", f"{job}: {line.reason}: {line.message}")


def delays(evidence: Evidence) -> Iterator[Violation]:
    """Whatever is done to the system, a job that nobody harmed waits no longer than so long for its turn."""
    for job, lines in evidence.jobs.items():
        asked = 0
        for line in lines if job not in evidence.excused else ():
            if isinstance(line, Asked):
                asked = line.mono
            elif isinstance(line, Granted) and (waited := (line.mono - asked) / 1e9) > LONGEST_WAIT:
                yield Violation("delays are bounded", f"{job} waited {waited:.1f} s for token {line.token}")
