# SPDX-License-Identifier: Apache-2.0
"""IDLE: nobody holds the turn. Put the group in order, then serve the head of the queue."""

from __future__ import annotations

from msgspec.structs import replace

from coordinator.decide.committing import KILL_AT_ATTEMPT
from coordinator.decide.decision import Decision, Grant, Refuse, Remove, Verdict, Wait, WaitKind
from coordinator.decide.drop import held_up, returned
from coordinator.decide.numbers import next_token
from coordinator.decide.queue import head_of, passed_over, pinned_for_several
from coordinator.decide.spec import claims_missing, deleted, respecified, surplus_claims
from coordinator.decide.switch import (
    away,
    begin,
    draining,
    incoming_for,
    may_kill,
    next_head,
    overtaken,
    policy_of,
    refuse_quarantined,
    resident_of,
    unknown,
)
from coordinator.decide.view import GroupView
from ledger import defaults
from ledger.kept import Kept
from ledger.records import (
    Ended,
    GroupSpec,
    Holder,
    Incoming,
    Phase,
    Resident,
    ResidentKind,
    Ticket,
    Turn,
)

BACKOFF_MS = 1_000
BACKOFF_MAX_MS = 60_000
REFUSED_AT_ONCE = 50
"""How many tickets one transaction refuses."""


def idle(view: GroupView) -> Verdict:
    assert view.turn is not None
    turn = view.turn.value
    if highest := overtaken(view, turn, {}):
        why = f"An agent has seen epoch {highest}: nobody can say who is on."
        return Verdict(Decision(why, replace(turn, epoch=highest, resident=unknown(turn))))
    for ticket in view.tickets.granted:
        why = f"{ticket.name} has a grant, but nobody holds the turn: it does not count."
        return Verdict(Decision(why, turn, (Remove(ticket.name, ticket.create),)))
    if view.spec is None or view.spec.value.deleting:
        return deleted(view, turn)
    if view.spec.mod == turn.generation:
        first = claims_missing(view, view.spec) or returned(view, turn, view.spec)
        return first if first is not None else _in_order(view, turn, view.spec)
    change = respecified(view, turn, view.spec)
    if change.decision is not None:
        return change
    if (back := returned(view, turn, view.spec)) is not None:
        return back  # what the spec waits for may be parked there
    verdict = _in_order(view, turn, view.spec)
    return verdict if verdict.decision else replace(verdict, note=f"{verdict.note} {change.note}".strip())


def _in_order(view: GroupView, turn: Turn, spec: Kept[GroupSpec]) -> Verdict:
    """What has to be put right before anybody is served, with the spec in force."""
    if spec.mod == turn.generation and not turn.leaving and (surplus := surplus_claims(view, turn, spec.value)):
        why = "Claims on devices that the group does not have any more."
        return Verdict(Decision(why, unclaim=surplus, spec_mod=spec.mod))
    if turn.pinned and view.processes_revision(turn.nodes) > turn.pinned.processes_revision:
        why = f"The processes of {turn.pinned.job} have changed: it is not pinned any more."
        return Verdict(Decision(why, replace(turn, pinned=None, attempt=0)))
    if refused := _barred(view):
        return Verdict(Decision("Tickets of quarantined jobs are refused.", turn, refused))
    own = view.waits(turn.pinned.job) if turn.pinned else None
    if own and (hindered := pinned_for_several(turn, own.name, own.value)) is not None:
        refusal = Refuse(own.name, own.create, "PINNED", hindered)
        return Verdict(Decision("A pinned job waits for several groups: refused.", turn, (refusal,)))
    if turn.paused:
        return Verdict(note="The group is paused.")
    return _serve(view, turn)


def _barred(view: GroupView) -> tuple[Refuse, ...]:
    """The refusals of the first quarantined jobs that wait. They are looked up by job: the queue may be long."""
    barred = [
        (one, why) for job in view.jobs if (why := view.quarantined(job)) is not None and (one := view.waits(job))
    ]
    barred.sort(key=lambda each: view.tickets.ahead(each[0]))
    return tuple(refuse_quarantined(one, why) for one, why in barred[:REFUSED_AT_ONCE])


def _serve(view: GroupView, turn: Turn) -> Verdict:
    resident, head = resident_of(turn), head_of(view, turn)
    if head and resident == Resident(ResidentKind.JOB, head.name):
        return Verdict(_free_path(view, turn, head))
    drained = draining(view, turn)
    if drained is not None:
        head = None  # nobody new is brought on there, but what has to go may go
    waiting = f"Blocked by {drained}: it is being drained." if drained else _quiet(turn, resident)
    if head is None and resident.kind in (ResidentKind.JOB, ResidentKind.NOBODY) and resident.ended is Ended.CLEAN:
        return Verdict(note=waiting)
    lost = resident.ended is Ended.LOST and resident.kind is not ResidentKind.NOBODY
    grace = Wait(WaitKind.GRACE, turn.token, defaults.lost_grace_ms(policy_of(view)))
    grace_over = lost and grace in view.passed
    waits = {grace} if lost and not grace_over else set()
    if head is None and resident.kind is ResidentKind.JOB and lost and not grace_over and not turn.kill:
        return Verdict(waits=frozenset(waits), note=f"{resident.job} is lost; its grace runs.")
    mixed = resident.kind is ResidentKind.MIXED
    desperate = mixed and turn.attempt >= KILL_AT_ATTEMPT
    out_of_grace = grace_over and may_kill(view) and not _comes_back(turn, head)
    kill = turn.kill or desperate or out_of_grace
    if kill:  # what kills pins nobody, and nobody is next by a pin that goes
        turn = replace(turn, pinned=None)
        head = next_head(view, turn)
    if turn.pinned and head is None and not mixed:
        return Verdict(waits=frozenset(waits), note=waiting)
    held_back = _held_back(view, turn, waits, grace_over=out_of_grace)
    if held_back is not None:
        return held_back
    if (missing := away(view, turn)) is not None:
        return held_up(view, turn, missing, f"Blocked by {missing}: its agent is away.", frozenset(waits))
    on = incoming_for(None if desperate else head)
    if turn.pinned and mixed and head is None:
        on = Incoming(turn.pinned.job)  # half switched: it is put back
    why = f"Next is {on.job}." if on.job else "Nobody is next: the devices are cleared."
    return Verdict(begin(view, turn, on, why, kill=kill))


def _comes_back(turn: Turn, head: Kept[Ticket] | None) -> bool:
    """Whether next is the pinned job that was lost, by the very process that was: of that nothing has to go."""
    lost = resident_of(turn).lost_process
    return turn.pinned is not None and head is not None and lost is not None and head.value.process == lost


def _free_path(view: GroupView, turn: Turn, head: Kept[Ticket]) -> Decision:
    """The head is able to run already, and ended its last turn cleanly: nothing has to move."""
    token = next_token(view, turn)
    holder = Holder(head.name, head.value.session, head.value.process)
    held = replace(turn, phase=Phase.HELD, token=token, holder=holder, passed_over=passed_over(view, turn, head))
    return Decision(f"{head.name} is still on: granted.", held, (Grant(head.name, head.create, token),))


def _held_back(view: GroupView, turn: Turn, waits: set[Wait], *, grace_over: bool) -> Verdict | None:
    """A refused switch is tried again on an event of the node at fault, or after a while, or when it may kill."""
    if not turn.blocked or not turn.attempt:
        return None
    agent = view.node(turn.blocked.node).agent
    event = (agent.mod if agent else 0) != turn.blocked.agent_revision
    backoff = Wait(WaitKind.BACKOFF, turn.epoch, min(BACKOFF_MS * 2 ** min(turn.attempt - 1, 6), BACKOFF_MAX_MS))
    if event or backoff in view.passed or (grace_over and not turn.blocked.killing):
        return None
    return Verdict(waits=frozenset(waits | {backoff}), note=f"Blocked by {turn.blocked.node}: {turn.blocked.reason}.")


def _quiet(turn: Turn, resident: Resident) -> str:
    if turn.pinned:
        return f"{turn.pinned.job} is pinned ({turn.pinned.reason}): only its own tickets are served."
    return f"{resident.job} may go on at no cost." if resident.job else "Nobody is on."
