# SPDX-License-Identifier: Apache-2.0
"""What goes into the session's state machine, what it remembers and what comes out of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from timeslice_proto.v1 import coordinator_pb2, records_pb2
from tsclient.errors import LockLost, TimesliceError
from tsclient.progress import Progress


@dataclass(frozen=True, slots=True)
class Want:
    """What a caller asks for, session or none.

    Attributes:
        join: wait for another process's ticket of this job to go, rather than being refused.
        backend: by which the job is to be saved; empty: the node's default.
    """

    job: str
    groups: tuple[str, ...]
    priority: int = 0
    join: bool = False
    backend: str = ""

    def overlaps(self, other: Want) -> bool:
        """Whether both would be the same ticket in some group: a job has one ticket in each."""
        return self.job == other.job and not set(self.groups).isdisjoint(other.groups)

    def request(self, sequence: int) -> coordinator_pb2.AcquireRequest:
        return coordinator_pb2.AcquireRequest(
            sequence=sequence,
            job=self.job,
            groups=self.groups,
            priority=self.priority,
            if_held=coordinator_pb2.IF_HELD_WAIT if self.join else coordinator_pb2.IF_HELD_REFUSE,
            backend=self.backend,
        )


class Stage(enum.Enum):
    """How far an acquire has come."""

    LOCAL = enum.auto()  # behind another acquire of this process, or between two sessions
    WAITING = enum.auto()  # asked for
    UNPROVEN = enum.auto()  # granted, while the lease has no proof: held back until a beat is confirmed
    HELD = enum.auto()
    YIELDING = enum.auto()  # given back, unanswered
    CANCELLING = enum.auto()  # no longer wanted, unanswered


@dataclass(frozen=True, slots=True)
class Grant:
    """One group's part of a granted acquire."""

    group: str
    token: int
    restored: bool
    lost: tuple[records_pb2.Process, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One acquire of this process.

    Attributes:
        key: names it within this process, whatever session it is in; earlier acquires have smaller keys.
        sequence: names it within the session; 0 while LOCAL.
        sent: the request of its stage has gone out on the present stream.
        known: the server may have heard of it.
        not_before: when to send it (again) at the earliest; the session's clock, s.
        recovers: key of a lost turn in whose place it stands; nobody waits for it.
    """

    key: int
    want: Want
    stage: Stage = Stage.LOCAL
    sequence: int = 0
    sent: bool = False
    known: bool = False
    not_before: float = 0.0
    grants: tuple[Grant, ...] = ()
    recovers: int | None = None


# ---------------------------------------------------------------- what comes out


@dataclass(frozen=True, slots=True)
class Send:
    """To be written to the present stream, in order."""

    request: coordinator_pb2.SessionRequest


@dataclass(frozen=True, slots=True)
class HangUp:
    """End the present stream and make another, on another replica if there is one."""

    why: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is open, or open again."""


@dataclass(frozen=True, slots=True)
class Ended:
    """No stream is wanted any more: closed (no error), or impossible."""

    error: TimesliceError | None


@dataclass(frozen=True, slots=True)
class Granted:
    key: int
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The acquire or yield that a caller waits for has failed."""

    key: int
    error: TimesliceError


@dataclass(frozen=True, slots=True)
class GivenBack:
    """A yield is confirmed, or the ticket has gone in another way.

    Attributes:
        waiters: how many waited at that moment; None: not known.
    """

    key: int
    waiters: int | None


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Nothing of that acquire is left on the server."""

    key: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A held turn is over; final."""

    key: int
    error: LockLost


@dataclass(frozen=True, slots=True)
class Moved:
    """Something to tell the caller while it waits."""

    key: int
    progress: Progress


Output = Send | HangUp | Opened | Ended | Granted | Failed | GivenBack | Withdrawn | Lost | Moved
