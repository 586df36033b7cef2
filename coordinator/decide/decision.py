# SPDX-License-Identifier: Apache-2.0
"""What `decide` answers: one guarded transaction to be, or the waits after which it wants to be asked again."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field

from ledger.records import Directive, Job, Phase, Process, Ticket, Turn


class WaitKind(Enum):
    """What is waited for. Durations are measured by who waits, from when it first saw the reason (protocol rule 24)."""

    ANSWER = "answer"  # of the agents to a PREPARE
    BACKOFF = "backoff"  # before a refused switch is tried again
    GRACE = "grace"  # in which a lost holder may still resist
    HOLD = "hold"  # the longest that a turn may last, by the group's policy
    DROP = "drop"  # for an agent that is away, before the group goes on without its node


class Wait(Struct, frozen=True):
    """A wait of ``ms`` milliseconds. ``key`` names the occasion, so that another occasion is another wait.

    With ``node`` it is a wait for that node's agent, and over without having passed when the agent is there.
    """

    kind: WaitKind
    key: int
    ms: int
    node: str = ""


class Grant(Struct, frozen=True):
    """The WAITING ticket becomes GRANTED."""

    job: str
    create: int
    token: int
    restored: bool = False
    lost: tuple[Process, ...] = ()


class Refuse(Struct, frozen=True):
    """The WAITING ticket becomes REFUSED; ``reason`` is one of docs/errors.md."""

    job: str
    create: int
    reason: str
    why: str


class Remove(Struct, frozen=True):
    """The ticket is deleted."""

    job: str
    create: int


class Create(Struct, frozen=True):
    """A new ticket. Granted at once only under the guard that the queue is empty."""

    job: str
    ticket: Ticket


TicketChange = Grant | Refuse | Remove | Create


class Decision(Struct, frozen=True):
    """One transaction, guarded by each touched ticket's create revision, and by the turn's mod revision but where all
    that it does is to make tickets that wait.

    Attributes:
        why: one sentence: what is decided, and why.
        turn: the turn's new value; None leaves it as it is (but it is still compared).
        directives: for each node that is told something new.
        health: for each job whose record changes.
        spec_mod: if set, the spec must still have this mod revision.
        queue_empty: the queue must be empty.
        claim: devices to be claimed, by node; each must be free.
        unclaim: devices to be given up, by node.
        absent: nodes whose agent must still be away.
        forget: nodes on which the group's directive, acknowledgement and processes are deleted.
        remove_group: the group goes, with all that is its own.
    """

    why: str
    turn: Turn | None = None
    tickets: tuple[TicketChange, ...] = ()
    directives: Mapping[str, Directive] = field(default_factory=dict)
    health: Mapping[str, Job] = field(default_factory=dict)
    spec_mod: int = 0
    queue_empty: bool = False
    claim: tuple[tuple[str, str], ...] = ()
    unclaim: tuple[tuple[str, str], ...] = ()
    absent: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()
    remove_group: bool = False

    @property
    def stands_on(self) -> Mapping[str, int]:
        """The create revision that each of these tickets must have: those that it changes, and the one it prepares for.

        A ticket that is created must be absent: its revision is 0.
        """
        wanted: dict[str, int] = {}
        # Who writes such a turn and tells nobody to prepare, an operator, stands on no ticket: once that had gone
        # the write would lose its guard again and again, and the release waits for it in the same replica.
        begins = self.turn is not None and self.turn.phase is Phase.PREPARING and bool(self.directives)
        incoming = self.turn.incoming if self.turn and begins else None
        if incoming and incoming.ticket_revision:
            wanted[incoming.job] = incoming.ticket_revision
        for change in self.tickets:
            wanted[change.job] = 0 if isinstance(change, Create) else change.create
        return wanted


class Verdict(Struct, frozen=True):
    """The answer for one view.

    Attributes:
        decision: what is to be written, or None.
        waits: when one of these has passed, ask again.
        note: one sentence on where the group stands, for people.
        unanswered: from how many nodes an answer is awaited. Of good answers nothing follows but from the last.
    """

    decision: Decision | None = None
    waits: frozenset[Wait] = frozenset()
    note: str = ""
    unanswered: int = 0
