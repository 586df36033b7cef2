# SPDX-License-Identifier: Apache-2.0
"""What a session remembers of each acquire; as plain values, which one process can leave to another."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any

from tsclient.news import Grant
from tsclient.want import Want


class Stage(enum.Enum):
    """How far an acquire has come."""

    LOCAL = enum.auto()  # behind another acquire of this process, or between two sessions
    WAITING = enum.auto()  # asked for
    UNPROVEN = enum.auto()  # granted, while the lease has no proof: held back until a beat is confirmed
    HELD = enum.auto()
    YIELDING = enum.auto()  # given back, unanswered
    CANCELLING = enum.auto()  # no longer wanted, unanswered


@dataclass(frozen=True, slots=True)
class Entry:
    """One acquire of this process.

    Attributes:
        key: names it within this process, whatever session it is in; earlier acquires have smaller keys.
        sequence: names it within the session; 0 while LOCAL.
        sent: the request of its stage has gone out on the present stream.
        known: the server may have heard of it.
        not_before: when to send it (again) at the earliest; the session's clock, s.
        returned: the groups whose yield is confirmed.
        waiters: how many waited in those.
        recovers: key of a lost turn in whose place it stands; nobody waits for it.
        unanswered: while YIELDING: the yield went out on an earlier stream, and may have been carried out.
    """

    key: int
    want: Want
    stage: Stage = Stage.LOCAL
    sequence: int = 0
    sent: bool = False
    known: bool = False
    not_before: float = 0.0
    grants: tuple[Grant, ...] = ()
    returned: tuple[str, ...] = ()
    waiters: int = 0
    recovers: int | None = None
    unanswered: bool = False

    def off_stream(self) -> Entry:
        """As it is once the present stream is over."""
        if not self.sent:
            return self
        return replace(self, sent=False, unanswered=self.unanswered or self.stage is Stage.YIELDING)

    def saved(self) -> Entry:
        """What another process has to know of it."""
        off = self.off_stream()
        return replace(off, not_before=0.0) if off.not_before else off

    def plain(self) -> list[object]:
        """As `saved`, in values that JSON knows: it is put on record at each step, on the way of a turn."""
        want = self.want
        return [
            self.key,
            [want.job, want.groups, want.priority, want.join, want.backend],
            self.stage.name,
            self.sequence,
            self.known,
            [[grant.group, grant.token, grant.restored, grant.lost] for grant in self.grants],
            self.returned,
            self.waiters,
            self.recovers,
            self.unanswered or (self.sent and self.stage is Stage.YIELDING),
        ]

    @classmethod
    def of(cls, plain: list[Any]) -> Entry:
        """What `plain` was made of."""
        key, (job, groups, *more), stage, sequence, known, grants, returned, waiters, recovers, unanswered = plain
        return cls(
            key,
            Want(job, tuple(groups), *more),
            Stage[stage],
            sequence,
            known=known,
            grants=tuple(Grant(*grant) for grant in grants),
            returned=tuple(returned),
            waiters=waiters,
            recovers=recovers,
            unanswered=unanswered,
        )


@dataclass(frozen=True, slots=True)
class Saved:
    """A session as it is now, for a process that takes it over.

    Attributes:
        ttl: seconds.
        entries: without what is known of the present stream.
    """

    session: str
    secret: str
    ttl: float
    last_key: int
    last_sequence: int
    entries: tuple[Entry, ...] = ()
