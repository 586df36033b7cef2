# SPDX-License-Identifier: Apache-2.0
"""The state of the model: small, hashable, and the same for all histories that cannot be told apart.

Numbers are kept only as far as somebody can tell them apart. Nobody compares revisions of different keys, so each kind
has its own small scale:

- The turn's epoch and token are always "the current one", all else is older, or one ahead: a switch that is begun again
  and again comes back to the same state, so that an endless loop is a cycle and not an endless space.
- An answer names the current directive, or an older one.
- Tickets are numbered in the order of their create revisions; the number of one that is gone is `GONE`.
- An agent's registration is the one that a blocked switch blamed, or a later one.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

_Value = TypeVar("_Value")

GONE = 20
"""The create revision of a ticket that is not there any more."""

BLAMED, LATER = 5, 6
"""Mod revisions of an agent's registration."""

NO_TURN = "NO TURN"
"""The phase of a group that has no turn: it has not begun, or has been deleted."""

LOST, LOST_UNDER_COMMIT = 1, 2
"""How a job's last turn truly ended, if not in order."""

NO_RECORD, QUARANTINED, PARDONED = 0, 1, 2
"""What the ledger says of a job's health: nothing, that it is quarantined, or that it is sound again."""


class TurnState(NamedTuple):
    """The group's turn, without what never changes here. Jobs, nodes and phases by name, "" for none."""

    phase: str = NO_TURN
    holder: str = ""
    holder_session: int = 0
    yielded: bool = False  # the last token given back is the current one
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
    nodes: tuple[str, ...] = ()  # in force
    leaving: tuple[str, ...] = ()
    generation: int = 0  # of the spec in force
    passed_over: int = 0
    unrestored: str = ""  # the node on which a restore failed last …
    unrestored_job: str = ""  # … and whose; "" for several in a row


class SpecState(NamedTuple):
    """The wish. ``there`` is False before the group is made and after it is removed."""

    there: bool = True
    generation: int = 0
    deleting: bool = False
    force: bool = False


class TicketState(NamedTuple):
    create: int
    session: int
    state: str = "WAITING"
    current: bool = False  # GRANTED: with the turn's token
    ghost: bool = False  # made by a request that came again: its session does not want it


class DirectiveState(NamedTuple):
    """What a node is told."""

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
    lost: bool = False
    restored: bool = False


class Process(NamedTuple):
    """The process of a job on a node."""

    state: str  # RUNNING, LOCKED, PARKED or FAILED
    session: int


class Record(NamedTuple):
    """What the ledger says of a job's process on a node. ``lost``: the session whose loss it was parked with."""

    state: str
    session: int
    lost: int = 0


class Saying(NamedTuple):
    """An answer on its way into the ledger, and what its transaction compares.

    Attributes:
        records: what it writes beside; None: nothing.
        compares: of "directive", "agent" and "ack", what the transaction compares.
        current: it is to the directive that is there.
        living: the registration that it was given under is there.
        first: the answer that was there, to an older directive, is there still.
    """

    answer: Answer
    records: tuple[Record | None, ...] | None
    compares: tuple[str, ...]
    current: bool = True
    living: bool = True
    first: bool = True


class NodeState(NamedTuple):
    """A node: its agent and what that knows, what the ledger says of the node, and the processes on its device.

    Attributes:
        up: the agent lives.
        registered: mod revision of its key; 0: not there.
        ahead: it has seen an epoch beyond the turn's.
        prepared: in this epoch and life and under this registration.
        refused: that it will not carry out a directive of this epoch is in the ledger.
        begun: in its journal: 1: a COMMIT of this epoch has begun; 2: one of an older epoch; 0: none.
        locked: in its journal: what it locked for a PREPARE: job and session of each process.
        disk: what a crash would leave of these two, where it is not what they are.
        helped: jobs whose processes its living helpers have locked.
        orphans: of a dead agent, the driver calls in flight (job, call) of helpers that live on.
        saying: its answer on the way.
        again: an answer that was delivered, or whose sender has died, and may still arrive.
        directive: what it is told, in the ledger.
        untold: that key was deleted by hand.
        missed: an earlier directive that it may have read and not yet acted on; ``behind``: of an older epoch.
        answer: in the ledger; ``current``: to the directive that is there.
        claimed: who has its device: "", "ours" or "theirs".
        lasting: a fault that has come to stay.
    """

    up: bool = True
    registered: int = BLAMED
    ahead: bool = False
    prepared: bool = False
    refused: bool = False
    begun: int = 0
    locked: tuple[tuple[int, int], ...] = ()
    disk: tuple[int, tuple[tuple[int, int], ...]] | None = None
    helped: tuple[int, ...] = ()
    orphans: tuple[tuple[int, str], ...] = ()
    saying: Saying | None = None
    again: Saying | None = None
    directive: DirectiveState | None = None
    untold: bool = False
    missed: DirectiveState | None = None
    behind: bool = False
    answer: Answer | None = None
    current: bool = False
    processes: tuple[Process | None, ...] = ()
    records: tuple[Record | None, ...] = ()
    recorded: bool = False  # there is a record at all
    claimed: str = ""
    draining: bool = False
    lasting: str = ""

    @property
    def answered(self) -> bool:
        """The directive that is there has its answer."""
        return self.current and self.answer is not None


class TicketChange(NamedTuple):
    job: int
    what: str  # "create", "grant", "refuse" or "remove"
    create: int
    session: int = 0
    granted: bool = False
    ghost: bool = False


class Guards(NamedTuple):
    """What the production transaction compares, as far as it can change here."""

    turn: bool = False
    spec: bool = False
    tickets: tuple[tuple[int, int], ...] = ()  # (job, create revision; 0: absent)
    health: tuple[tuple[int, int], ...] = ()
    queue_empty: bool = False
    away: tuple[int, ...] = ()  # nodes whose agent must not be registered
    free: tuple[int, ...] = ()  # nodes whose device must be free
    kept: tuple[int, ...] = ()  # nodes whose claim must be as it was seen


class Effect(NamedTuple):
    """A decision, as what it compares and what it changes."""

    guards: Guards
    turn: TurnState | None = None
    new_epoch: bool = False
    overtakes: bool = False  # the new epoch is one that an agent has seen
    new_token: bool = False
    tickets: tuple[TicketChange, ...] = ()
    directives: tuple[tuple[int, DirectiveState], ...] = ()
    health: tuple[tuple[int, bool], ...] = ()  # for each job whose record changes: whether it is quarantined
    claim: tuple[int, ...] = ()
    unclaim: tuple[int, ...] = ()
    forget: tuple[int, ...] = ()
    removed: bool = False


class Ready(NamedTuple):
    """How a decision may come into a replica's hand here and now.

    Attributes:
        fault: what that takes; "": nothing.
        inside: it is decided without a client or an operator who asks.
    """

    fault: str
    inside: bool


class Pending(NamedTuple):
    """A decision that a replica has made and not yet written.

    Attributes:
        fresh: the turn is the one that it was made on.
        wish: so is the spec.
        ready: it is made now, in the step that leads on from this state; None: it is in a replica's hand since earlier.
    """

    effect: Effect
    fresh: bool = True
    wish: bool = True
    ready: Ready | None = None

    @property
    def decided(self) -> Pending:
        """The same, in a replica's hand."""
        return self._replace(ready=None)


class Snapshot(NamedTuple):
    """What a backup of etcd holds of the group."""

    turn: TurnState
    tickets: tuple[TicketState | None, ...]
    quarantined: tuple[int, ...]


class State(NamedTuple):
    turn: TurnState
    spec: SpecState
    tickets: tuple[TicketState | None, ...]
    quarantined: tuple[int, ...]
    nodes: tuple[NodeState, ...]
    passed: tuple[str, ...]  # kinds of waits that have passed, for the current occasion
    sessions: tuple[int, ...]  # for each job the life of its client
    pending: tuple[Pending, ...]
    faults: tuple[int, ...]  # how many of each are left
    lost: tuple[int, ...]  # for each job: how its last turn truly ended, whatever the turn says; 0: in order
    lost_by: tuple[int, ...]  # for each job, by bit: the client's lives that truly lost it, and have not had it again
    snapshot: Snapshot | None = None


def put(values: tuple[_Value, ...], place: int, value: _Value) -> tuple[_Value, ...]:
    """The tuple with another value at this place."""
    return (*values[:place], value, *values[place + 1 :])


def in_force(turn: TurnState, place: int) -> bool:
    """Whether the node at this place is one of the turn's."""
    return f"n{place + 1}" in turn.nodes
