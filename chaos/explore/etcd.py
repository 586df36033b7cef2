# SPDX-License-Identifier: Apache-2.0
"""A transaction in the model: its guards, and what it changes. It applies at once and whole, or not at all."""

from __future__ import annotations

from chaos.explore.state import (
    BLAMED,
    GONE,
    LATER,
    LOST,
    NO_RECORD,
    NO_TURN,
    PARDONED,
    QUARANTINED,
    DirectiveState,
    Effect,
    NodeState,
    Pending,
    Saying,
    State,
    TicketChange,
    TicketState,
    TurnState,
    put,
)


def holds(state: State, pending: Pending) -> bool:
    """Whether every compare of the transaction is true, and every put under an existing lease finds its key."""
    if stale(state, pending):
        return False
    guards = pending.effect.guards
    if guards.queue_empty and any(state.tickets):
        return False
    if any(state.nodes[place].registered for place in guards.away):
        return False
    if any(state.nodes[place].claimed for place in guards.free):
        return False
    if any(state.nodes[place].claimed != "ours" for place in guards.kept):
        return False
    return all(state.tickets[change.job] for change in pending.effect.tickets if change.what in ("grant", "refuse"))


def stale(state: State, pending: Pending) -> bool:
    """Whether the transaction can never apply any more. Revisions do not come back."""
    guards = pending.effect.guards
    if (guards.turn and not pending.fresh) or (guards.spec and not pending.wish):
        return True
    for job, create in guards.tickets:
        ticket = state.tickets[job]
        if create and (ticket is None or ticket.create != create):
            return True
        if not create and ticket is not None:
            return True
    return any(state.quarantined[job] != mod for job, mod in guards.health)


def write(state: State, effect: Effect) -> State:
    """The state after the transaction."""
    before, lost = state.turn, state.lost
    tickets = list(state.tickets)
    turn, nodes, passed, pending = before, state.nodes, state.passed, state.pending
    if effect.turn is not None:
        turn = effect.turn
        if effect.new_epoch:
            passed = tuple(kind for kind in passed if kind not in ("answer", "backoff", "drop"))
            told_of_it = before.phase != NO_TURN or bool(effect.directives)
            nodes = tuple(_new_epoch(node, overtaken=effect.overtakes, told=told_of_it) for node in nodes)
        if effect.new_token:
            passed = tuple(kind for kind in passed if kind not in ("grace", "hold"))
            tickets = [ticket and ticket._replace(current=False) for ticket in tickets]
        if turn.phase != "PREPARING":
            passed = tuple(kind for kind in passed if kind != "answer")
        pending = tuple(one._replace(fresh=False) for one in pending)
        lost = _truly_lost(before, turn, lost)
    spec, lost_by = state.spec, state.lost_by
    if before.phase == "HELD" and turn.phase != "HELD" and not turn.yielded:
        job = "abcdefgh".index(before.holder)  # taken away, if it has not been lost before
        lost, lost_by = put(lost, job, LOST), put(lost_by, job, lost_by[job] | 1 << before.holder_session)
    for change in effect.tickets:
        tickets[change.job] = _ticket(tickets, change)
    quarantined = state.quarantined
    if effect.health:
        changed = {job: QUARANTINED if out else PARDONED for job, out in effect.health}
        quarantined = tuple(changed.get(job, was) for job, was in enumerate(quarantined))
    for place, directive in effect.directives:
        nodes = put(nodes, place, told(nodes[place], directive, new_epoch=effect.new_epoch))
    for place in effect.claim:
        nodes = put(nodes, place, nodes[place]._replace(claimed="ours"))
    for place in effect.unclaim:
        nodes = put(nodes, place, nodes[place]._replace(claimed=""))
    for place in effect.forget:
        nodes = put(nodes, place, forgotten(nodes[place]))
    if before.phase == "COMMITTING" and turn.phase == "IDLE" and before.incoming_ticket and not before.cancelled:
        job = "abcdefgh".index(before.incoming)  # brought on for a session that is gone
        if turn.resident_job == before.incoming:
            lost_by = put(lost_by, job, lost_by[job] | 1 << before.incoming_session)
    if turn.phase == "HELD" and before.phase != "HELD":
        lost_by = tuple(
            lives & ~(1 << ticket.session) if ticket and ticket.current else lives
            for ticket, lives in zip(tickets, lost_by, strict=True)
        )
    if effect.removed:
        turn, spec, lost = TurnState(), spec._replace(there=False), (0,) * len(lost)
        lost_by = lost
        pending = tuple(one._replace(fresh=False, wish=False) for one in pending)
        quarantined = (NO_RECORD,) * len(quarantined)
    after = state._replace(
        turn=turn,
        spec=spec,
        tickets=tuple(tickets),
        quarantined=quarantined,
        nodes=nodes,
        passed=passed,
        pending=pending,
        lost=lost,
        lost_by=lost_by,
    )
    return settled(after)


def settled(state: State) -> State:
    """The same state in its one form: tickets numbered anew, writes that can never apply given up."""
    state = _numbered(state)
    if state.pending:
        kept = tuple(one for one in state.pending if not stale(state, one))
        if kept != state.pending:
            state = state._replace(pending=kept)
    return _blame(state)


def told(node: NodeState, directive: DirectiveState, *, new_epoch: bool) -> NodeState:
    """A directive is there. What is on its way answers an older one, and may still be missed by its reader."""
    missed, behind = node.missed, node.behind or new_epoch
    unread = node.directive is not None and not node.answered and not node.untold and node.saying is None
    if unread and node.up and node.registered:
        missed, behind = node.directive, new_epoch
    return node._replace(
        directive=directive,
        untold=False,
        refused=node.refused and not node.untold,  # whose directive a hand has deleted judges the same one anew
        missed=missed,
        behind=behind if missed else False,
        current=False,
        saying=_older(node.saying),
        again=_older(node.again),
    )


def forgotten(node: NodeState) -> NodeState:
    """The ledger says nothing of the group on this node any more."""
    return node._replace(
        directive=None,
        untold=False,
        answer=None,
        current=False,
        records=(None,) * len(node.records),
        recorded=False,
        saying=_older(node.saying),
        again=_older(node.again),
    )


def records_changed(state: State) -> State:
    """Process records were written: a pin sees the change."""
    turn = state.turn._replace(pin_changed=True) if state.turn.pinned else state.turn
    pending = state.pending
    if any(one.effect.turn and one.effect.turn.pinned for one in pending):
        pending = tuple(_pin_changed(one) for one in pending)
    return state._replace(turn=turn, pending=pending)


def _pin_changed(pending: Pending) -> Pending:
    turn = pending.effect.turn
    if turn is None or not turn.pinned:
        return pending
    return pending._replace(effect=pending.effect._replace(turn=turn._replace(pin_changed=True)))


def _new_epoch(node: NodeState, *, overtaken: bool, told: bool) -> NodeState:
    """What was prepared for an earlier epoch counts for nothing; what has begun is of an older one.

    Agents learn of an epoch by a directive. The turn that a group begins with tells them none (``told``), unless there
    is a PREPARE to release: what else was left from before a hand deleted the last turn is carried out as ever.
    """
    ahead = node.ahead and not overtaken
    if not told and node.directive is not None:
        return node._replace(ahead=ahead)
    disk = node.disk and (2 if node.disk[0] else 0, node.disk[1])
    return node._replace(prepared=False, refused=False, begun=2 if node.begun else 0, disk=disk, ahead=ahead)


def _older(saying: Saying | None) -> Saying | None:
    return saying and saying._replace(current=False)


def _ticket(tickets: list[TicketState | None], change: TicketChange) -> TicketState | None:
    old = tickets[change.job]
    match change.what:
        case "create":
            newest = max((one.create for one in tickets if one), default=0) + 1
            state = "GRANTED" if change.granted else "WAITING"
            return TicketState(newest, change.session, state, change.granted, change.ghost)
        case "grant":
            assert old is not None
            return old._replace(state="GRANTED", current=True)
        case "refuse":
            assert old is not None
            return old._replace(state="REFUSED", current=False)
        case _:
            return None


def _truly_lost(before: TurnState, after: TurnState, lost: tuple[int, ...]) -> tuple[int, ...]:
    """A switch that is finished has put right what was lost before it, but not what was lost under it."""
    if before.phase != "COMMITTING" or after.phase == "COMMITTING":
        return lost
    finished = after.phase in ("HELD", "IDLE") and after.resident != "MIXED"
    return tuple(max(was - 1, 0) if finished else min(was, LOST) for was in lost)


def _numbered(state: State) -> State:
    order = sorted(ticket.create for ticket in state.tickets if ticket)
    turn = state.turn
    known = turn.incoming_ticket in (0, GONE) or turn.incoming_ticket in order
    if known and order == list(range(1, len(order) + 1)):
        return state
    number = {create: place + 1 for place, create in enumerate(order)}
    tickets = tuple(ticket and ticket._replace(create=number[ticket.create]) for ticket in state.tickets)
    if turn.incoming_ticket:
        turn = turn._replace(incoming_ticket=number.get(turn.incoming_ticket, GONE))
    pending = tuple(one._replace(effect=_renumbered(one.effect, number)) for one in state.pending)
    return state._replace(tickets=tickets, turn=turn, pending=pending)


def _renumbered(effect: Effect, number: dict[int, int]) -> Effect:
    def new(create: int) -> int:
        return number.get(create, GONE) if create else 0

    turn = effect.turn
    if turn is not None and turn.incoming_ticket:
        turn = turn._replace(incoming_ticket=new(turn.incoming_ticket))
    guards = effect.guards._replace(tickets=tuple((job, new(create)) for job, create in effect.guards.tickets))
    changes = tuple(change._replace(create=new(change.create)) for change in effect.tickets)
    return effect._replace(guards=guards, turn=turn, tickets=changes)


def _blame(state: State) -> State:
    """The blamed registration is BLAMED if it is still there, and LATER if another has come since."""
    turn = state.turn
    if turn.phase == NO_TURN or (not turn.blocked and all(node.registered in (0, BLAMED) for node in state.nodes)):
        return state
    wanted: list[NodeState] = []
    blamed = turn.blamed
    place = int(turn.blocked[1:]) - 1 if turn.blocked else -1
    for number, node in enumerate(state.nodes):
        if number != place or not node.registered:
            wanted.append(node._replace(registered=BLAMED) if node.registered else node)
        elif node.registered == turn.blamed:
            blamed = BLAMED
            wanted.append(node._replace(registered=BLAMED))
        else:
            wanted.append(node._replace(registered=LATER))
    return state._replace(turn=turn._replace(blamed=blamed), nodes=tuple(wanted))
