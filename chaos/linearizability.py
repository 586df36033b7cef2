# SPDX-License-Identifier: Apache-2.0
"""Whether what the clients of a group saw can be told as one lock, one step after another.

A history is linearizable if each call can be given one moment between its begin and its end, so that in the order of
those moments a plain lock, of one holder and growing tokens, would have given the same answers. Tokens and grants may
each look right and the whole still be wrong, as when somebody's acquire ends before the holder's yield has begun.

The search is that of Wing and Gong ("Testing and verifying concurrent objects", 1993) with the memory of Lowe ("Testing
for linearizability", 2017): what was linearized, with the state it led to, is tried once. A group is a lock of its own,
so each is checked by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from chaos.dev.lines import Asked, Granted, Line, Yielded


class Kind(Enum):
    """What a client asked for; LOSE nobody asks for: the lock takes the turn from a client that was harmed."""

    ACQUIRE = "acquire"
    YIELD = "yield"
    LOSE = "lose"


@dataclass(frozen=True, slots=True)
class Operation:
    """One call: of whom, and with which token; begin and end in ns of one clock for all.

    ``end`` None: nobody knows, so it took effect at any time since ``begin``, or never.
    """

    client: str
    kind: Kind
    token: int
    begin: int
    end: int | None

    def __str__(self) -> str:
        return f"{self.kind.value} of token {self.token} by {self.client}"


@dataclass(frozen=True, slots=True)
class Lock:
    """The state of the plain lock: who has it (empty: nobody), and the last token that it gave out."""

    holder: str = ""
    token: int = 0

    def after(self, one: Operation) -> Lock | None:
        """The state that this leads to; None: the lock would not have answered so."""
        match one.kind:
            case Kind.ACQUIRE:
                return Lock(one.client, one.token) if not self.holder and one.token > self.token else None
            case Kind.YIELD | Kind.LOSE:
                return Lock("", self.token) if (self.holder, self.token) == (one.client, one.token) else None

    def __str__(self) -> str:
        return f"{self.holder} has the lock with token {self.token}" if self.holder else "nobody has the lock"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer.

    Attributes:
        order: as many operations as could be put in an order; all that have ended, if the history is linearizable.
        state: the lock after them.
        stuck: an operation that has no place after them, and ended before any other began; None: all have a place.
    """

    order: tuple[Operation, ...]
    state: Lock
    stuck: Operation | None = None

    @property
    def linearizable(self) -> bool:
        return self.stuck is None

    def __str__(self) -> str:
        if self.stuck is None:
            return f"{len(self.order)} operations are linearizable"
        return f"{self.stuck} has no place: {self.state}, after {len(self.order)} operations in order"


def check(operations: Iterable[Operation]) -> Verdict:
    """Find an order, or the longest beginning of one."""
    calls = sorted(operations, key=lambda one: one.begin)
    first = _chain(calls)
    left = sum(one.end is not None for one in calls)
    state, done = Lock(), 0
    seen: set[tuple[int, Lock]] = {(0, state)}
    taken: list[tuple[_Event, Lock]] = []
    longest = Verdict((), state)
    at = first.after
    while left:
        assert at is not None, "an end is left in the chain as long as there is one to come"
        if not at.is_end:
            following = state.after(at.call)
            bit = 1 << at.number
            if following is not None and (done | bit, following) not in seen:
                seen.add((done | bit, following))
                taken.append((at, state))
                state, done = following, done | bit
                left -= at.call.end is not None
                at.take_out()
                at = first.after
            else:
                at = at.after
            continue
        # Whatever comes from here on began after this one had ended: it had to be placed by now.
        if longest.stuck is None or len(taken) > len(longest.order):
            longest = Verdict(tuple(event.call for event, _ in taken), state, at.call)
        if not taken:
            return longest
        event, state = taken.pop()
        done ^= 1 << event.number
        left += event.call.end is not None
        event.put_back()
        at = event.after
    return Verdict(tuple(event.call for event, _ in taken), state)


def of_jobs(jobs: Mapping[str, Sequence[Line]], excused: Iterable[str] = ()) -> list[Operation]:
    """The history that jobs of one group have reported. Those that were harmed may have lost a turn at any time."""
    harmed = frozenset(excused)
    return [one for job, lines in jobs.items() for one in _of_job(job, lines, harmed=job in harmed)]


def _of_job(job: str, lines: Sequence[Line], *, harmed: bool) -> list[Operation]:
    found: list[Operation] = []
    asked = 0
    held: Granted | None = None

    def lost() -> None:
        if held is not None and harmed:
            found.append(Operation(job, Kind.LOSE, held.token, held.mono, None))

    for line in lines:
        match line:
            case Asked():
                lost()
                asked, held = line.mono, None
            case Granted():
                found.append(Operation(job, Kind.ACQUIRE, line.token, asked, line.mono))
                held = line
            case Yielded():
                found.append(Operation(job, Kind.YIELD, line.token, line.yielding, line.mono))
                held = None
            case _:
                pass  # a turn that is lost is seen by what follows
    lost()
    return found


class _Event:
    """The begin or the end of a call, in a chain by time from which calls are taken out and put back."""

    __slots__ = ("after", "before", "call", "end", "is_end", "number")

    def __init__(self, call: Operation, number: int, *, is_end: bool) -> None:
        self.call, self.number, self.is_end = call, number, is_end
        self.before: _Event | None = None
        self.after: _Event | None = None
        self.end: _Event | None = None

    def take_out(self) -> None:
        for one in (self, self.end):
            if one is not None:
                assert one.before is not None
                one.before.after = one.after
                if one.after is not None:
                    one.after.before = one.before

    def put_back(self) -> None:
        """To be done in the reverse order of taking out: each remembers its neighbours."""
        for one in (self.end, self):
            if one is not None:
                assert one.before is not None
                one.before.after = one
                if one.after is not None:
                    one.after.before = one


def _chain(calls: Sequence[Operation]) -> _Event:
    """All begins and ends by time, behind a first one that is neither. At the same time begins come first."""
    events: list[tuple[int, bool, _Event]] = []
    for number, call in enumerate(calls):
        begin = _Event(call, number, is_end=False)
        events.append((call.begin, False, begin))
        if call.end is not None:
            begin.end = _Event(call, number, is_end=True)
            events.append((call.end, True, begin.end))
    events.sort(key=lambda one: one[:2])
    first = last = _Event(Operation("", Kind.LOSE, 0, 0, None), -1, is_end=False)
    for _, _, event in events:
        last.after, event.before = event, last
        last = event
    return first
