# SPDX-License-Identifier: Apache-2.0
"""The pieces of a switch that several phases share: beginning one, giving one up, and reading its answers."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from coordinator.decide.decision import Decision, Refuse, TicketChange
from coordinator.decide.numbers import next_epoch
from coordinator.decide.queue import head_of
from coordinator.decide.view import ABSENT, GroupView
from ledger import defaults
from ledger.kept import Kept
from ledger.records import (
    Ack,
    Blocked,
    Directive,
    DirectiveKind,
    Ended,
    Health,
    Incoming,
    Job,
    LostPolicy,
    Outcome,
    Phase,
    Policy,
    Resident,
    ResidentKind,
    Ticket,
    TicketState,
    Turn,
)

NOBODY = Incoming()


def policy_of(view: GroupView) -> Policy | None:
    return view.spec.value.policy if view.spec else None


def may_kill(view: GroupView) -> bool:
    """Whether a lost job that resists may be killed."""
    policy = policy_of(view)
    return policy is None or policy.lost is LostPolicy.PARK_OR_KILL


def resident_of(turn: Turn) -> Resident:
    return turn.resident or Resident(ResidentKind.UNKNOWN)


def unknown(turn: Turn) -> Resident:
    """Nobody can say who is on, nor how it ended; but a lost session's process stays known (protocol rule 5)."""
    resident = resident_of(turn)
    if resident.ended is Ended.LOST:
        return replace(resident, kind=ResidentKind.UNKNOWN)
    return Resident(ResidentKind.UNKNOWN)


def incoming_for(ticket: Kept[Ticket] | None) -> Incoming:
    """Bring on the job of this ticket, or nobody."""
    if ticket is None:
        return NOBODY
    return Incoming(ticket.name, ticket.create, ticket.value.process)


def answers(view: GroupView, turn: Turn) -> Mapping[str, Ack]:
    """The acknowledgements of the current directives, by node, in the turn's order. One of an older does not count."""
    found: dict[str, Ack] = {}
    nodes = view.nodes  # not one by one by `GroupView.node`: with each answer of many nodes all are gone through
    for node in turn.nodes:
        state = nodes.get(node, ABSENT)
        if (ack := state.ack) and (told := state.directive) and ack.value.directive_revision == told.mod:
            found[node] = ack.value
    return found


def all_say(turn: Turn, acks: Mapping[str, Ack], outcome: Outcome) -> bool:
    return all(node in acks and acks[node].outcome is outcome for node in turn.nodes)


def away(view: GroupView, turn: Turn) -> str | None:
    """The first node in force whose agent is away."""
    nodes = view.nodes
    for node in turn.nodes:
        if nodes.get(node, ABSENT).agent is None:
            return node
    return None


def overtaken(view: GroupView, turn: Turn, acks: Mapping[str, Ack]) -> int:
    """The epoch that an agent has seen beyond the turn's, by registration or STALE answer; 0 if none has.

    It shows that etcd has been restored to an earlier state: nothing that the turn says about the devices counts.
    """
    stale = [ack.highest_epoch for ack in acks.values() if ack.outcome is Outcome.STALE]
    highest = max((view.highest_epoch(), *stale))
    return highest if highest > turn.epoch or stale else 0


def incoming_ticket(view: GroupView, turn: Turn) -> Kept[Ticket] | None:
    """The incoming ticket if it is still there, the same one, and waiting."""
    if turn.incoming is None or not turn.incoming.ticket_revision:
        return None
    ticket = view.ticket(turn.incoming.job)
    if ticket and ticket.create == turn.incoming.ticket_revision and ticket.value.state is TicketState.WAITING:
        return ticket
    return None


def still_incoming(view: GroupView, turn: Turn) -> Incoming:
    """Who is brought on by a new epoch of this switch: the same; or, if its ticket is gone, the next.

    So too if it was next by a pin alone that ``turn``, which is to be, does not have any more.
    """
    assert view.turn is not None and turn.incoming is not None
    pinned = view.turn.value.pinned
    by_pin = pinned is not None and turn.pinned is None and pinned.job == turn.incoming.job
    if not turn.incoming.ticket_revision or (incoming_ticket(view, turn) is not None and not by_pin):
        return turn.incoming
    return incoming_for(next_head(view, turn))


def next_head(view: GroupView, turn: Turn, *, beside: str = "") -> Kept[Ticket] | None:
    """The head of the queue, or nobody while a node of the group is being drained."""
    return None if draining(view, turn) else head_of(view, turn, beside=beside)


def draining(view: GroupView, turn: Turn) -> str | None:
    return next((node for node in turn.nodes if view.node(node).draining), None)


def blame(view: GroupView, turn: Turn, node: str, reason: str) -> Blocked:
    agent = view.node(node).agent
    return Blocked(reason=reason, node=node, agent_revision=agent.mod if agent else 0, killing=turn.kill)


def begin(
    view: GroupView,
    turn: Turn,
    incoming: Incoming,
    why: str,
    *,
    kill: bool = False,
    reported: int = 0,
    tickets: tuple[TicketChange, ...] = (),
    health: Mapping[str, Job] | None = None,
) -> Decision:
    """PREPARE on every node in force, under a new epoch.

    The switch goes on naming the resident as it was before: only its end says otherwise. What kills pins nobody.
    """
    after = replace(
        turn,
        phase=Phase.PREPARING,
        epoch=next_epoch(view, turn, reported),
        holder=None,
        incoming=incoming,
        blocked=None,
        pinned=None if kill else turn.pinned,
        kill=kill,
    )
    allowed = defaults.prepare_ms(policy_of(view))
    return Decision(
        why=why,
        turn=after,
        tickets=tickets,
        directives=_tell(view, after, DirectiveKind.PREPARE, allowed),
        health=health or {},
    )


def commit(view: GroupView, turn: Turn) -> Decision:
    """COMMIT on every node, since all are prepared."""
    after = replace(turn, phase=Phase.COMMITTING)
    allowed = defaults.commit_ms(policy_of(view))
    return Decision(
        why="All nodes are prepared: commit.",
        turn=after,
        directives=_tell(view, after, DirectiveKind.COMMIT, allowed),
    )


def release(
    view: GroupView,
    turn: Turn,
    why: str,
    *,
    reported: int = 0,
    tickets: tuple[TicketChange, ...] = (),
    health: Mapping[str, Job] | None = None,
) -> Decision:
    """RELEASE on every node: nothing irreversible has happened, the resident is as it was.

    The epoch stays that of the switch which is given up, unless an agent has already seen a higher one (``reported``).
    """
    epoch = next_epoch(view, turn, reported) if reported else turn.epoch
    after = replace(turn, phase=Phase.RELEASING, epoch=epoch, kill=False)
    allowed = defaults.commit_ms(policy_of(view))
    return Decision(
        why=why,
        turn=after,
        tickets=tickets,
        directives=_tell(view, after, DirectiveKind.RELEASE, allowed),
        health=health or {},
    )


def told_again(view: GroupView) -> Decision | None:
    """What COMMITTING and RELEASING nodes are to do, once more for those whose directive is gone.

    It is written with the turn, so only a hand can have deleted it; but its node would never answer. An agent that has
    done it finds nothing left to do.
    """
    assert view.turn is not None
    turn = view.turn.value
    nodes = view.nodes
    untold = [node for node in turn.nodes if nodes.get(node, ABSENT).directive is None]
    if not untold:
        return None
    kind = DirectiveKind.COMMIT if turn.phase is Phase.COMMITTING else DirectiveKind.RELEASE
    every = _tell(view, turn, kind, defaults.commit_ms(policy_of(view)))
    why = f"The directive of {untold[0]} is gone: told again."
    return Decision(why, turn, directives={node: every[node] for node in untold})


def quarantine(view: GroupView, job: str, why: str) -> Mapping[str, Job]:
    kept = view.jobs.get(job)
    return {job: replace(kept.value if kept else Job(), health=Health.QUARANTINED, why=why)}


def knowing(view: GroupView, health: Mapping[str, Job]) -> GroupView:
    """The same group, its jobs as they are to be: who is about to be quarantined is not next."""
    return replace(view, jobs={**view.jobs, **{job: Kept(job, record, 0, 0) for job, record in health.items()}})


def unpinned(turn: Turn, job: str) -> Turn:
    """Nobody waits for a job that is quarantined or killed."""
    return replace(turn, pinned=None) if turn.pinned and turn.pinned.job == job else turn


def refuse_deleting(view: GroupView, ticket: Kept[Ticket]) -> Refuse:
    return Refuse(ticket.name, ticket.create, "GROUP_DELETING", f"The group {view.name} is being deleted.")


def refuse_quarantined(ticket: Kept[Ticket], why: str) -> Refuse:
    return Refuse(ticket.name, ticket.create, "JOB_QUARANTINED", why)


def clear(view: GroupView, turn: Turn, node: str) -> Directive:
    """COMMIT of nobody, for one node that is not in force: its agent prepares by itself before it commits."""
    alone = replace(turn, nodes=(node,), leaving=(), incoming=NOBODY, kill=may_kill(view))
    return _tell(view, alone, DirectiveKind.COMMIT, defaults.commit_ms(policy_of(view)))[node]


def _tell(view: GroupView, turn: Turn, kind: DirectiveKind, allowed_ms: int) -> dict[str, Directive]:
    resident, incoming = resident_of(turn), turn.incoming or NOBODY
    lost = resident.ended is Ended.LOST
    release = kind is DirectiveKind.RELEASE
    clean = resident.kind is ResidentKind.JOB and not lost
    told: dict[str, Directive] = {}
    for node in turn.nodes:
        on = (resident.job if clean else "") if release else incoming.job
        leaves = node in turn.leaving
        told[node] = Directive(
            epoch=turn.epoch,
            kind=kind,
            on=on if release or not leaves else "",
            keep=release and not clean,
            devices=view.claimed(node),
            allowed_ms=allowed_ms,
            attempt=turn.attempt,
            kill=turn.kill and not release,
            lost_job=resident.job if lost else "",
            lost_process=resident.lost_process if lost else None,
            on_process=None if release or leaves else incoming.process,
            parked_ttl_ms=defaults.parked_ttl_ms(policy_of(view)),
            traceparent=turn.traceparent,
        )
    return told
