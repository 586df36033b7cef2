# SPDX-License-Identifier: Apache-2.0
"""What clients and operators ask for, as decisions: pure, like `decide`, and guarded alike.

Each function returns the decision that carries out the request on this view, or raises the `Refusal` that answers it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from coordinator.decide.core import then_decide
from coordinator.decide.decision import Create, Decision, Refuse, Remove
from coordinator.decide.drop import left_behind
from coordinator.decide.held import lost_turn
from coordinator.decide.numbers import next_token
from coordinator.decide.queue import pinned_for_several
from coordinator.decide.switch import resident_of
from coordinator.decide.view import GroupView
from ledger.kept import Kept
from ledger.records import (
    Ended,
    Health,
    Holder,
    Phase,
    Resident,
    ResidentKind,
    Ticket,
    TicketState,
    Turn,
)


class Refusal(Exception):
    """A request that is not carried out: nothing was changed.

    Attributes:
        reason: one of docs/errors.md.
        metadata: what it is about, for programs.
    """

    def __init__(self, reason: str, message: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason, self.message, self.metadata = reason, message, dict(metadata or {})


class Nothing(Struct, frozen=True):
    """The request has been carried out already."""

    why: str


def acquire(view: GroupView, job: str, ticket: Ticket) -> Decision | Nothing:
    """A place in the queue; with the grant in the same transaction where nothing has to move and nobody waits.

    Idempotent by the ticket's session and sequence. A ticket that names several groups is one of those that are made
    together, each by its own group's answer.
    """
    turn = _turn(view)
    assert view.spec is not None
    existing = view.ticket(job)
    if existing is not None:
        if (existing.value.session, existing.value.sequence) == (ticket.session, ticket.sequence):
            return Nothing(f"{job} is in the queue of {view.name}.")
        raise Refusal(
            "ALREADY_QUEUED",
            f"Job {job} has a ticket of group {view.name} already, of another process or acquire.",
            {"group": view.name, "job": job},
        )
    if view.spec.value.deleting:
        raise Refusal("GROUP_DELETING", f"Group {view.name} is being deleted.", {"group": view.name})
    if (why := view.quarantined(job)) is not None:
        raise Refusal("JOB_QUARANTINED", f"Job {job} is quarantined: {why}.", {"group": view.name, "job": job})
    if (why := pinned_for_several(turn, job, ticket)) is not None:
        raise Refusal("PINNED", why, {"group": view.name, "job": job})
    spec_mod = view.spec.mod
    free = len(ticket.groups) <= 1  # of several groups each grants by its own turn
    free = free and turn.phase is Phase.IDLE and not view.tickets and not turn.paused and spec_mod == turn.generation
    free = free and (turn.pinned is None or turn.pinned.job == job)
    if free and resident_of(turn) == Resident(ResidentKind.JOB, job) and view.highest_epoch() <= turn.epoch:
        token = next_token(view, turn)
        granted = replace(ticket, state=TicketState.GRANTED, token=token)
        held = replace(turn, phase=Phase.HELD, token=token, holder=Holder(job, ticket.session, ticket.process))
        why = f"{job} is still on and nobody waits: granted."
        return Decision(why, held, (Create(job, granted),), spec_mod=spec_mod, queue_empty=True)
    return Decision(f"{job} queues.", tickets=(Create(job, ticket),), spec_mod=spec_mod)


def give_back(view: GroupView, job: str, session: str, token: int) -> Decision | Nothing:
    """A yield. The next switch begins in the same transaction where it can."""
    turn = _turn(view)
    ticket = view.ticket(job)
    holds = turn.phase is Phase.HELD and turn.holder is not None and turn.holder.job == job and turn.token == token
    granted = ticket is not None and ticket.value.state is TicketState.GRANTED and ticket.value.token == token
    if holds and granted and ticket is not None and ticket.value.session == session:
        return then_decide(view, _yielded(turn, ticket))
    if turn.yielded_token == token and token:
        return Nothing("That turn has been given back already.")
    about = {"group": view.name, "job": job, "token": str(token)}
    if holds and granted:
        raise Refusal("NOT_HOLDER", f"Token {token} of group {view.name} belongs to another session.", about)
    raise Refusal("STALE_TOKEN", f"Token {token} of group {view.name} is old: that turn is over.", about)


def cancel(view: GroupView, job: str, session: str, sequence: int) -> Decision | Nothing:
    """Take back an acquire, whatever has become of it. Of a granted one it is a yield."""
    if view.turn is None:
        return Nothing("There is no such group.")
    turn, ticket = view.turn.value, view.ticket(job)
    if ticket is None or (ticket.value.session, ticket.value.sequence) != (session, sequence):
        return Nothing(f"{job} has no such ticket.")
    if ticket.value.state is TicketState.GRANTED and turn.phase is Phase.HELD and turn.token == ticket.value.token:
        return then_decide(view, _yielded(turn, ticket))
    after: Turn | None = None  # a waiter that leaves does not disturb a switch
    if turn.phase is Phase.COMMITTING and turn.incoming and turn.incoming.ticket_revision == ticket.create:
        after = replace(turn, incoming=replace(turn.incoming, cancelled=True))
    return Decision(f"{job} takes its ticket back.", after, (Remove(job, ticket.create),))


def pause(view: GroupView, paused: bool) -> Decision | Nothing:
    turn = _turn(view)
    if turn.paused == paused:
        return Nothing("It is so already.")
    return Decision("Paused by an operator." if paused else "Resumed by an operator.", replace(turn, paused=paused))


def evict(view: GroupView, job: str) -> Decision | Nothing:
    """Take the turn, the place or the residency from a job. What is pinned is killed by the next switch."""
    turn = _turn(view)
    ticket, resident = view.ticket(job), resident_of(turn)
    removed = (Remove(job, ticket.create),) if ticket else ()
    if turn.phase is Phase.HELD and turn.holder and turn.holder.job == job:
        return then_decide(
            view, Decision(f"{job} is evicted from its turn.", _to_be_killed(lost_turn(turn), job), removed)
        )
    if ticket and turn.phase is not Phase.HELD and turn.incoming and turn.incoming.job == job:
        return Decision(f"{job}, which was about to be on, is evicted.", tickets=removed)
    pinned = turn.pinned is not None and turn.pinned.job == job
    if ticket and ticket.value.state is TicketState.WAITING and not (pinned and turn.phase is Phase.IDLE):
        why = f"Job {job} was evicted by an operator."
        return Decision(f"{job} is evicted from the queue.", tickets=(Refuse(job, ticket.create, "EVICTED", why),))
    if turn.phase is Phase.IDLE and (pinned or (resident.kind is ResidentKind.JOB and resident.job == job)):
        lost = replace(resident, ended=Ended.LOST) if resident.job == job else resident
        return then_decide(
            view, Decision(f"{job} is evicted.", _to_be_killed(replace(turn, resident=lost), job), removed)
        )
    if ticket is None and resident.job != job:
        raise Refusal("NO_SUCH_JOB", f"Job {job} is neither in the queue nor on in group {view.name}.")
    raise Refusal("CONFLICT", f"A switch of group {view.name} is under way: evict {job} when it has ended.")


def unquarantine(view: GroupView, job: str, *, force: bool = False) -> Decision | Nothing:
    """Declare a job sound. Not while a dropped node may still have it on its devices, unless an operator insists."""
    kept = view.jobs.get(job)
    if kept is None:
        raise Refusal("NO_SUCH_JOB", f"Group {view.name} has no record of a job {job}.")
    if kept.value.health is Health.OK:
        return Nothing("It is sound already.")
    if view.turn is not None and not force and (nodes := left_behind(view, view.turn.value, job)):
        raise Refusal(
            "NODE_DROPPED",
            f"Job {job} had processes on {', '.join(nodes)} when the group went on without it, and it is not back yet.",
            {"group": view.name, "job": job, "nodes": ", ".join(nodes)},
        )
    # The turn is written as it is: whoever drops a node now, and takes the job for quarantined, decides anew.
    same = view.turn.value if view.turn is not None else None
    return Decision(f"{job} is declared sound.", same, health={job: replace(kept.value, health=Health.OK, why="")})


def _yielded(turn: Turn, ticket: Kept[Ticket]) -> Decision:
    """Each turn of a pinned job's own ends with another try to take it off: what hindered it may have passed."""
    pinned = turn.pinned is not None and turn.pinned.job == ticket.name
    idle = replace(
        turn,
        phase=Phase.IDLE,
        holder=None,
        yielded_token=turn.token,
        resident=Resident(ResidentKind.JOB, ticket.name),
        pinned=None if pinned else turn.pinned,
    )
    return Decision(f"{ticket.name} yields.", idle, (Remove(ticket.name, ticket.create),))


def _to_be_killed(turn: Turn, job: str) -> Turn:
    if turn.pinned and turn.pinned.job == job:
        return replace(turn, pinned=None, kill=True)
    return turn


def _turn(view: GroupView) -> Turn:
    if view.spec is None or view.turn is None:
        raise Refusal("NO_SUCH_GROUP", f"There is no group {view.name}.", {"group": view.name})
    return view.turn.value
