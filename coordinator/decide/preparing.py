# SPDX-License-Identifier: Apache-2.0
"""PREPARING: every node checks, reserves and locks; nothing irreversible has happened yet."""

from __future__ import annotations

from msgspec.structs import replace

from coordinator.decide.decision import Decision, Verdict, Wait, WaitKind
from coordinator.decide.switch import (
    all_say,
    answers,
    away,
    begin,
    blame,
    commit,
    incoming_ticket,
    overtaken,
    policy_of,
    quarantine,
    refuse_quarantined,
    release,
    resident_of,
    still_incoming,
    unknown,
    unpinned,
)
from coordinator.decide.view import GroupView
from ledger import defaults
from ledger.records import Ack, Ended, Fault, Outcome, Pinned, ResidentKind, Turn

ANSWER_MARGIN_MS = 2_000
"""A living agent answers within the time allowed; so much longer until it is taken for hanging."""


def preparing(view: GroupView) -> Verdict:
    assert view.turn is not None and view.turn.value.incoming is not None
    turn, incoming = view.turn.value, view.turn.value.incoming
    acks = answers(view, turn)
    if highest := overtaken(view, turn, acks):
        why = f"An agent has seen epoch {highest}: prepare anew above it; nobody can say who is on."
        doubtful, on = replace(turn, resident=unknown(turn)), still_incoming(view, turn)
        return Verdict(begin(view, doubtful, on, why, kill=turn.kill, reported=highest))
    if incoming.ticket_revision and incoming_ticket(view, turn) is None:
        return Verdict(release(view, turn, f"The ticket of {incoming.job} is gone: release."))
    if turn.paused:
        return Verdict(release(view, turn, "The group is paused: release."))
    if view.spec is None or view.spec.value.deleting:
        return Verdict(release(view, turn, "The group is being deleted: release."))
    for node, ack in acks.items():
        if ack.outcome in (Outcome.REFUSED, Outcome.FAILED):
            return Verdict(_refused(view, turn, node, ack))
    if missing := away(view, turn):
        return Verdict(_blocked(view, turn, missing, "its agent is away"))
    if all_say(turn, acks, Outcome.PREPARED):
        return Verdict(commit(view, turn))
    wait = Wait(WaitKind.ANSWER, turn.epoch, defaults.prepare_ms(policy_of(view)) + ANSWER_MARGIN_MS)
    if wait in view.passed:
        silent = next(node for node in turn.nodes if node not in acks)
        return Verdict(_blocked(view, turn, silent, "its agent has not answered in the time allowed"))
    note = f"{len(acks)} of {len(turn.nodes)} nodes are prepared for {incoming.job or 'nobody'}."
    return Verdict(waits=frozenset({wait}), note=note, unanswered=len(turn.nodes) - len(acks))


def _refused(view: GroupView, turn: Turn, node: str, ack: Ack) -> Decision:
    """Who is at fault decides (the table of failures in docs/protocol.md)."""
    assert turn.incoming is not None
    resident = resident_of(turn)
    match ack.fault:
        case Fault.INCOMING if turn.incoming.job:
            job = turn.incoming.job
            ticket = incoming_ticket(view, turn)
            mixed = resident.kind is ResidentKind.MIXED
            return release(
                view,
                replace(unpinned(turn, job), attempt=turn.attempt + mixed),
                f"{job} cannot be brought on ({node}: {ack.why}): release; the job is quarantined.",
                tickets=(refuse_quarantined(ticket, ack.why),) if ticket else (),
                health=quarantine(view, job, f"{node}: {ack.why}"),
            )
        case Fault.OUTGOING if resident.kind is not ResidentKind.MIXED and (job := ack.job or resident.job):
            if resident.ended is Ended.LOST and job == resident.job:
                return _blocked(view, turn, node, f"{job}, whose session is lost, cannot be taken off: {ack.why}")
            pinned = replace(turn, attempt=turn.attempt + 1, pinned=Pinned(job, f"{node}: {ack.why}"))
            return release(view, pinned, f"{job} cannot be taken off ({node}: {ack.why}): release; it is pinned.")
        case _:
            return _blocked(view, turn, node, ack.why)


def _blocked(view: GroupView, turn: Turn, node: str, reason: str) -> Decision:
    after = replace(turn, attempt=turn.attempt + 1, blocked=blame(view, turn, node, reason))
    return release(view, after, f"{node}: {reason}: release, and try again later.")
