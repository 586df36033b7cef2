# SPDX-License-Identifier: Apache-2.0
"""COMMITTING: state moves. It ends in a grant, or in a new epoch; never in a half-switched group."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from coordinator.decide.decision import Decision, Grant, Verdict
from coordinator.decide.drop import held_up
from coordinator.decide.numbers import next_token
from coordinator.decide.queue import passed_over
from coordinator.decide.restores import exonerated, nodes_fault, still_doubted
from coordinator.decide.switch import (
    all_say,
    answers,
    begin,
    blame,
    incoming_for,
    incoming_ticket,
    knowing,
    may_kill,
    next_head,
    overtaken,
    quarantine,
    refuse_deleting,
    refuse_quarantined,
    resident_of,
    still_incoming,
    unknown,
    unpinned,
)
from coordinator.decide.view import GroupView
from ledger.records import (
    Ack,
    Ended,
    Failure,
    Fault,
    Holder,
    Incoming,
    Job,
    Outcome,
    Phase,
    Pinned,
    Resident,
    ResidentKind,
    Turn,
    Unrestored,
)

KILL_AT_ATTEMPT = 2
"""A switch that has failed so often while MIXED kills what it can neither save nor restore: so this always ends."""


def committing(view: GroupView) -> Verdict:
    assert view.turn is not None and view.turn.value.incoming is not None
    turn, incoming = view.turn.value, view.turn.value.incoming
    acks = answers(view, turn)
    if highest := overtaken(view, turn, acks):
        why = f"An agent has seen epoch {highest}: prepare anew above it; nobody can say who is on."
        doubtful, on = replace(turn, resident=unknown(turn)), still_incoming(view, turn)
        return Verdict(begin(view, doubtful, on, why, kill=turn.kill, reported=highest))
    for node, ack in acks.items():
        if ack.outcome in (Outcome.FAILED, Outcome.REFUSED):
            return Verdict(_failed(view, turn, node, ack))
    if all_say(turn, acks, Outcome.COMMITTED):
        return Verdict(_finished(view, turn, acks))
    missing = [node for node in turn.nodes if node not in acks]
    gone = [node for node in missing if view.node(node).agent is None]
    note = f"{len(acks)} of {len(turn.nodes)} nodes have committed {incoming.job or 'nobody'}."
    if not gone:
        return Verdict(note=note, unanswered=len(missing))
    note += f" The agent of {gone[0]} is away: the switch is finished when it is back."
    return held_up(view, turn, gone[0], note)


def _finished(view: GroupView, turn: Turn, acks: Mapping[str, Ack]) -> Decision:
    assert turn.incoming is not None
    incoming = turn.incoming
    done = replace(
        turn,
        phase=Phase.IDLE,
        incoming=None,
        nodes=tuple(node for node in turn.nodes if node not in turn.leaving),
        leaving=(),
        attempt=0,
        kill=False,
        resident=_now_resident(turn, incoming),
        pinned=turn.pinned and replace(turn.pinned, processes_revision=view.processes_revision(turn.nodes)),
        unrestored=still_doubted(turn, acks),
    )
    ticket = incoming_ticket(view, turn)
    if ticket is None:
        if incoming.ticket_revision and not incoming.cancelled:
            # Nobody gets this token; it tells this loss, and its grace, from the one before.
            done = replace(done, token=next_token(view, turn))
        why = f"All nodes have committed {incoming.job or 'nobody'}; nobody is there to be granted."
        return Decision(why, done, forget=turn.leaving)
    if view.spec is None or view.spec.value.deleting:
        done = replace(done, resident=Resident(ResidentKind.JOB, incoming.job))
        why = f"All nodes have committed {incoming.job}; the group is being deleted: refused."
        return Decision(why, done, (refuse_deleting(view, ticket),), forget=turn.leaving)
    token = next_token(view, turn)
    lost = tuple(process for node in turn.nodes for process in acks[node].lost)
    restored = any(acks[node].restored for node in turn.nodes)
    held = replace(
        done,
        phase=Phase.HELD,
        token=token,
        holder=Holder(ticket.name, ticket.value.session, ticket.value.process),
        resident=Resident(ResidentKind.JOB, ticket.name),
        passed_over=passed_over(view, done, ticket),
    )
    grant = Grant(ticket.name, ticket.create, token, restored, lost)
    return Decision(f"All nodes have committed: {ticket.name} is on.", held, (grant,), forget=turn.leaving)


def _now_resident(turn: Turn, incoming: Incoming) -> Resident:
    """Who is on after a commit that grants nothing."""
    if not incoming.job:
        return Resident(ResidentKind.NOBODY)
    old = resident_of(turn)
    if not incoming.ticket_revision and old.job == incoming.job:  # put back: it keeps how its turn had ended
        return replace(old, kind=ResidentKind.JOB)
    if not incoming.ticket_revision:
        return Resident(ResidentKind.UNKNOWN, incoming.job)  # it is on, but how its last turn ended is not known
    if incoming.cancelled:
        return Resident(ResidentKind.JOB, incoming.job)
    return Resident(ResidentKind.JOB, incoming.job, Ended.LOST, incoming.process)


def _failed(view: GroupView, turn: Turn, node: str, ack: Ack) -> Decision:
    """A new epoch: who is at fault decides who is to be on in it."""
    assert turn.incoming is not None
    incoming, resident = turn.incoming, resident_of(turn)
    mixed = replace(resident, kind=ResidentKind.MIXED)
    attempt = turn.attempt + 1 if resident.kind is ResidentKind.MIXED else 1
    again = replace(turn, resident=mixed, attempt=attempt)
    said = f"{node}: {ack.why}"
    outgoing = ack.failure is Failure.NOT_SAVED or ack.fault is Fault.OUTGOING
    if ack.failure is Failure.PROCESS_LOST and ack.job and ack.job != incoming.job:
        health, again = quarantine(view, ack.job, f"lost: {said}"), unpinned(again, ack.job)
        on = still_incoming(knowing(view, health), again)
        return begin(view, again, on, f"{ack.job} is lost ({said}): prepare anew.", health=health)
    if outgoing and turn.kill:
        return _pause(view, again, turn, node, ack)
    if outgoing and attempt >= KILL_AT_ATTEMPT:
        return begin(view, again, Incoming(), f"Nothing helps ({said}): kill what cannot be saved.", kill=True)
    if outgoing and resident.ended is Ended.LOST:
        again = replace(again, pinned=None) if may_kill(view) else again
        on = still_incoming(view, again)
        return begin(view, again, on, f"A lost job is not saved ({said}): prepare anew.", kill=may_kill(view))
    if outgoing and (job := ack.job or resident.job):
        back = replace(again, pinned=Pinned(job, said))
        return begin(view, back, Incoming(job), f"{job} is not saved ({said}): put it back; it is pinned.")
    if incoming.job and (ack.fault is Fault.INCOMING or ack.failure is not Failure.NONE):
        ticket = incoming_ticket(view, turn)
        again = unpinned(again, incoming.job)
        if ack.failure is Failure.NOT_RESTORED and nodes_fault(turn, node, incoming.job):
            blamed = replace(again, unrestored=Unrestored(node))
            return _pause(view, blamed, turn, node, ack, health=exonerated(view, turn))
        if ack.failure is Failure.NOT_RESTORED:
            again = replace(again, unrestored=Unrestored(node, incoming.job, said))
        following = next_head(view, again, beside=incoming.job)
        return begin(
            view,
            again,
            incoming_for(following),
            f"{incoming.job} is not brought back ({said}): it is quarantined; prepare anew.",
            tickets=(refuse_quarantined(ticket, said),) if ticket else (),
            health=quarantine(view, incoming.job, said),
        )
    if attempt < KILL_AT_ATTEMPT:
        on = still_incoming(view, again)
        return begin(view, again, on, f"The commit failed ({said}): prepare anew.", kill=turn.kill)
    return _pause(view, again, turn, node, ack)


def _pause(
    view: GroupView, again: Turn, turn: Turn, node: str, ack: Ack, *, health: Mapping[str, Job] | None = None
) -> Decision:
    """IDLE and half switched: nobody is served, and the next switch waits for the node's event or a while."""
    blocked = blame(view, turn, node, ack.why)
    idle = replace(again, phase=Phase.IDLE, incoming=None, kill=False, blocked=blocked)
    return Decision(f"The commit failed again ({node}: {ack.why}): prepare anew later.", idle, health=health or {})
