# SPDX-License-Identifier: Apache-2.0
"""The state of the model: small, hashable, and the same for all histories that cannot be told apart.

Numbers are kept only as far as somebody can tell them apart. Nobody compares revisions of different keys, so each kind
has its own small scale:

- The turn's epoch and token are always "the current one": a switch that is begun again and again comes back to the
  same state, so that an endless loop is a cycle and not an endless space.
- An answer names the current directive or it does not count: of older ones nothing is kept.
- Tickets are numbered in the order of their create revisions; the number of one that is gone is `GONE`.
- An agent's registration is the one that a blocked switch blamed, or a later one.
"""

from __future__ import annotations

from typing import NamedTuple

GONE = 20
"""The create revision of a ticket that is not there any more."""

BLAMED, LATER = 5, 6
"""Mod revisions of an agent's registration."""


LOST, LOST_UNDER_COMMIT = 1, 2
"""How a job's last turn truly ended, if not in order."""


class TurnState(NamedTuple):
    """The group's turn, without what never changes here. Jobs, nodes and phases by name, "" for none."""

    phase: str = "IDLE"
    holder: str = ""
    holder_session: int = 0
    resident: str = "UNKNOWN"
    resident_job: str = ""
    ended: str = "CLEAN"
    lost_session: int = 0
    switching: bool = False  # an incoming side is named, if only "nobody"
    incoming: str = ""
    incoming_ticket: int = 0
    incoming_session: int = 0
    cancelled: bool = False
    attempt: int = 0
    blocked: str = ""
    blamed: int = 0
    killing: bool = False
    pinned: str = ""
    pin_changed: bool = False
    kill: bool = False
    paused: bool = False
    out: tuple[str, ...] = ()  # nodes that were dropped
    unrestored: str = ""  # the node on which a restore failed last …
    unrestored_job: str = ""  # … and whose; "" for several in a row


def in_force(turn: TurnState, place: int) -> bool:
    """Whether the node at this place has not been dropped."""
    return f"n{place + 1}" not in turn.out


class TicketState(NamedTuple):
    create: int
    session: int
    state: str = "WAITING"
    current: bool = False  # GRANTED: with the turn's token


class DirectiveState(NamedTuple):
    """What every node in force is told. They are told alike and at once."""

    kind: str
    on: str
    keep: bool
    kill: bool
    lost_job: str
    lost_session: int
    on_session: int


class Answer(NamedTuple):
    outcome: str
    fault: str = "NONE"
    failure: str = "NONE"
    job: str = ""


class Process(NamedTuple):
    """The process of a job on a node. ``lost``: parked when its session's turn was lost (protocol rule 5)."""

    state: str  # RUNNING, LOCKED or PARKED
    session: int
    lost: bool = False


class NodeState(NamedTuple):
    """A node: its agent, what that has read of the ledger and said, and the processes on the device."""

    up: bool = True
    registered: int = BLAMED  # mod revision of its key; 0: not there
    step: str = ""  # what it is about to do; "" for nothing
    told: DirectiveState | None = None  # what it is carrying out …
    current: bool = False  # … and whether that is still what is in the ledger
    prepared: str = ""  # in this epoch and life: "yes" or "refused"
    begun: bool = False  # COMMIT-BEGUN is in its journal
    saying: Answer | None = None
    answer: Answer | None = None  # in the ledger, to the current directive
    apart: DirectiveState | None = None  # what it was told when it was dropped; in force it is told what all are told
    processes: tuple[Process | None, ...] = ()
    lasting: str = ""  # a fault that has come to stay


class TicketChange(NamedTuple):
    job: int
    what: str  # "create", "grant", "refuse" or "remove"
    create: int
    session: int = 0
    granted: bool = False


class Guards(NamedTuple):
    """What the production transaction compares, as far as it can change here."""

    turn: bool
    tickets: tuple[tuple[int, int], ...]  # (job, create revision; 0: absent)
    health: tuple[tuple[int, int], ...]
    queue_empty: bool
    away: tuple[int, ...] = ()  # nodes whose agent must not be registered


class Effect(NamedTuple):
    """A decision, as what it compares and what it changes."""

    guards: Guards
    turn: TurnState | None
    new_epoch: bool
    new_token: bool
    tickets: tuple[TicketChange, ...]
    directive: DirectiveState | None  # for every node in force
    health: tuple[tuple[int, bool], ...]  # for each job whose record changes: whether it is quarantined
    apart: tuple[tuple[int, DirectiveState], ...] = ()


class Pending(NamedTuple):
    """A decision that a replica has made and not yet written. ``fresh``: the turn is the one it was made on."""

    effect: Effect
    fresh: bool = True


class Snapshot(NamedTuple):
    """What a backup of etcd holds of the group."""

    turn: TurnState
    tickets: tuple[TicketState | None, ...]
    quarantined: tuple[bool, ...]


class State(NamedTuple):
    turn: TurnState
    tickets: tuple[TicketState | None, ...]
    quarantined: tuple[bool, ...]
    directive: DirectiveState | None
    nodes: tuple[NodeState, ...]
    passed: tuple[str, ...]  # kinds of waits that have passed, for the current occasion
    sessions: tuple[int, ...]  # for each job the life of its client
    pending: tuple[Pending, ...]
    faults: tuple[int, ...]  # how many of each are left
    lost: tuple[int, ...]  # for each job: how its last turn truly ended, whatever the turn says; 0: in order
    snapshot: Snapshot | None = None
