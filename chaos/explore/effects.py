# SPDX-License-Identifier: Apache-2.0
"""From a `Decision` and the transaction that carries it out to an `Effect`: what it compares, and what it changes."""

from __future__ import annotations

from collections.abc import Mapping

from chaos.explore.device import life_of
from chaos.explore.invariants import Broken
from chaos.explore.picture import EPOCH, GHOST, GROUP, SPEC, TICKET, TOKEN, Picture
from chaos.explore.state import DirectiveState, Effect, Guards, TicketChange, TurnState
from coordinator.apply.transaction import Transaction
from coordinator.decide import Decision, Grant, GroupView, Refuse, Remove
from coordinator.decide.committing import KILL_AT_ATTEMPT
from coordinator.decide.decision import Create
from coordinator.decide.queue import AGING_TURNS
from ledger.etcd.txn import Put
from ledger.keys import Keys, Kind
from ledger.records import (
    Blocked,
    Directive,
    Health,
    Holder,
    Incoming,
    Outcome,
    Pinned,
    Resident,
    TicketState,
    Turn,
    Unrestored,
)

KEYS = Keys("/explored/")


def effect_of(picture: Picture, view: GroupView, decision: Decision, written: Transaction) -> Effect:
    """The effect of a decision that was made on this view and is written so.

    Raises:
        Broken: its numbers do not grow (4), or it takes a ticket off its session's lease (7).
    """
    jobs, places = picture.jobs, {str(name): place for place, name in enumerate(picture.names)}
    after, highest = decision.turn, view.highest_epoch()
    new_epoch = after is not None and _is_new("epoch", EPOCH, after.epoch, view)
    acks = [node.ack.value for node in view.nodes.values() if node.ack]
    seen = max(highest, *(ack.highest_epoch for ack in acks if ack.outcome is Outcome.STALE), EPOCH)
    return Effect(
        guards=_guards(picture, places, decision, written),
        turn=_turn_state(picture, after) if after else None,
        new_epoch=new_epoch,
        # The next switch's epoch is larger still than that of a turn which tells nobody anything.
        overtakes=after is not None and new_epoch and EPOCH < seen <= after.epoch - bool(decision.directives),
        new_token=after is not None and _is_new("token", TOKEN, after.token, view),
        tickets=tuple(sorted(_change(picture, change) for change in decision.tickets)),
        directives=tuple(sorted((places[node], _directive(picture, one)) for node, one in decision.directives.items())),
        health=tuple(
            sorted((jobs.index(job), one.health is Health.QUARANTINED) for job, one in decision.health.items())
        ),
        claim=tuple(sorted(places[node] for node, _ in decision.claim)),
        unclaim=tuple(sorted(places[node] for node, _ in decision.unclaim)),
        forget=tuple(sorted(places[node] for node in decision.forget)),
        removed=decision.remove_group,
    )


def _is_new(what: str, before: int, after: int, view: GroupView) -> bool:
    """Whether it is another number, which must be larger than all that were given before.

    Where no turn is there to say what was, those were all below the store's revision.
    """
    if view.turn is None and after < view.revision:
        raise Broken(4, f"the first turn has {what} {after}, and the store is at revision {view.revision}")
    if view.turn is not None and after < before:
        raise Broken(4, f"{what} {before} is followed by {after}")
    return view.turn is None or after > before


def _guards(picture: Picture, places: Mapping[str, int], decision: Decision, written: Transaction) -> Guards:
    """What the production transaction compares. What cannot change in the model is left out."""
    jobs = picture.jobs
    turn = spec = empty = False
    tickets: dict[int, int] = {}
    health: dict[int, int] = {}
    away: list[int] = []
    free: list[int] = []
    kept: list[int] = []
    for compare in written.compares:
        place = KEYS.place(compare.key)
        if compare.range_end:
            empty = empty or compare.key == KEYS.tickets(GROUP)
            continue
        assert place is not None
        match place.kind:
            case Kind.TURN:
                turn = True
            case Kind.SPEC:
                spec = True
            case Kind.TICKET:
                tickets[jobs.index(place.name)] = compare.number - TICKET if compare.number else 0
            case Kind.JOB:
                health[jobs.index(place.name)] = compare.number
            case Kind.AGENT:
                away.append(places[place.node])
            case Kind.CLAIM:
                (kept if compare.number else free).append(places[place.node])
            case _:
                raise AssertionError(place)
    for op in written.ops:
        place = KEYS.place(op.key)
        if isinstance(op, Put) and place and place.kind is Kind.TICKET and not (op.lease or op.ignore_lease):
            raise Broken(7, f"a ticket is taken off its lease: {decision.why}")
    sort = (tuple(sorted(tickets.items())), tuple(sorted(health.items())))
    return Guards(turn, spec, *sort, empty, tuple(sorted(away)), tuple(sorted(free)), tuple(sorted(kept)))


def _turn_state(picture: Picture, turn: Turn) -> TurnState:
    resident, incoming = turn.resident or Resident(), turn.incoming or Incoming()
    holder, blocked, pinned = turn.holder or Holder(), turn.blocked or Blocked(), turn.pinned or Pinned()
    unrestored = turn.unrestored or Unrestored()
    return TurnState(
        phase=turn.phase.name,
        holder=picture.model_job(holder.job),
        holder_session=life_of(holder.process),
        yielded=turn.yielded_token == turn.token,
        resident=resident.kind.name,
        resident_job=picture.model_job(resident.job),
        ended=resident.ended.name,
        lost_session=life_of(resident.lost_process),
        switching=turn.incoming is not None,
        incoming=picture.model_job(incoming.job),
        incoming_ticket=incoming.ticket_revision - TICKET if incoming.ticket_revision else 0,
        incoming_session=life_of(incoming.process),
        cancelled=incoming.cancelled,
        attempt=min(turn.attempt, KILL_AT_ATTEMPT),  # beyond it only the length of a wait grows
        blocked=picture.model_name(blocked.node),
        blamed=blocked.agent_revision,
        killing=blocked.killing,
        pinned=picture.model_job(pinned.job),
        pin_changed=bool(pinned.job) and pinned.processes_revision < 10,
        kill=turn.kill,
        paused=turn.paused,
        nodes=tuple(sorted(map(picture.model_name, turn.nodes))),
        leaving=tuple(sorted(map(picture.model_name, turn.leaving))),
        generation=turn.generation - SPEC,
        passed_over=min(turn.passed_over, AGING_TURNS),
        unrestored=picture.model_name(unrestored.node),
        unrestored_job=picture.model_job(unrestored.job),
    )


def _change(picture: Picture, change: object) -> TicketChange:
    job = picture.jobs.index
    match change:
        case Grant():
            return TicketChange(job(change.job), "grant", change.create - TICKET)
        case Refuse():
            return TicketChange(job(change.job), "refuse", change.create - TICKET)
        case Remove():
            return TicketChange(job(change.job), "remove", change.create - TICKET)
        case Create(ticket=ticket):
            granted, ghost = ticket.state is TicketState.GRANTED, ticket.sequence == GHOST
            return TicketChange(job(change.job), "create", 0, life_of(ticket.process), granted, ghost)
    raise AssertionError(change)


def _directive(picture: Picture, told: Directive) -> DirectiveState:
    return DirectiveState(
        told.kind.name,
        picture.model_job(told.on),
        told.keep,
        told.kill,
        picture.model_job(told.lost_job),
        life_of(told.lost_process),
        life_of(told.on_process),
    )
