# SPDX-License-Identifier: Apache-2.0
"""A decision as one etcd transaction: what it compares, and what it does. Pure."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from coordinator.decide import Decision, Grant, GroupView, Refuse, Remove
from coordinator.decide.decision import Create
from ledger.codec import encode
from ledger.etcd.txn import (
    Compare,
    Delete,
    Op,
    Put,
    absent,
    created_at,
    delete_prefix,
    modified_at,
    prefix_empty,
)
from ledger.kept import Kept
from ledger.keys import Keys
from ledger.records import Claim, Ticket, TicketState


class Transaction(Struct, frozen=True):
    compares: tuple[Compare, ...]
    ops: tuple[Op, ...]


def transaction(keys: Keys, view: GroupView, decision: Decision) -> Transaction:
    """The transaction that carries out ``decision``, which was made on ``view``.

    Every write of the turn compares its mod revision, and every ticket touched its create revision, so that a decision
    made on an older turn changes nothing. A new ticket that is not granted at once leaves the turn out: waiters do not
    compete with a switch.
    """
    compares: list[Compare] = []
    ops: list[Op] = []
    _turn(keys, view, decision, compares, ops)
    _tickets(keys, view, decision, compares, ops)
    for node, directive in decision.directives.items():
        ops.append(Put(keys.directive(node, view.name), encode(directive)))
    for job, record in decision.health.items():
        key, kept = keys.job(view.name, job), view.jobs.get(job)
        compares.append(modified_at(key, kept.mod) if kept else absent(key))
        ops.append(Put(key, encode(record)))
    if decision.spec_mod:
        compares.append(modified_at(keys.spec(view.name), decision.spec_mod))
    if decision.queue_empty:
        compares.append(prefix_empty(keys.tickets(view.name)))
    for node, device in decision.claim:
        compares.append(absent(keys.claim(node, device)))
        ops.append(Put(keys.claim(node, device), encode(Claim(group=view.name))))
    for node, device in decision.unclaim:
        compares.append(created_at(keys.claim(node, device), view.node(node).claims[device].create))
        ops.append(Delete(keys.claim(node, device)))
    compares += [absent(keys.agent(node)) for node in decision.absent]
    for node in decision.forget:
        ops += [Delete(key(node, view.name)) for key in (keys.directive, keys.ack, keys.processes)]
        ops.append(delete_prefix(keys.registered(node, view.name, "")))
    if decision.remove_group:
        ops += [Delete(keys.spec(view.name)), Delete(keys.turn(view.name)), delete_prefix(keys.jobs(view.name))]
    return Transaction(tuple(compares), tuple(ops))


def _turn(keys: Keys, view: GroupView, decision: Decision, compares: list[Compare], ops: list[Op]) -> None:
    key = keys.turn(view.name)
    only_new = bool(decision.tickets) and all(isinstance(change, Create) for change in decision.tickets)
    if decision.turn is None and only_new:
        return
    compares.append(modified_at(key, view.turn.mod) if view.turn else absent(key))
    if decision.turn is not None:
        ops.append(Put(key, encode(decision.turn)))


def _tickets(keys: Keys, view: GroupView, decision: Decision, compares: list[Compare], ops: list[Op]) -> None:
    for job, create in decision.stands_on.items():
        compares.append(created_at(keys.ticket(view.name, job), create))
    for change in decision.tickets:
        key = keys.ticket(view.name, change.job)
        match change:
            case Create(ticket=ticket):
                health, kept = keys.job(view.name, change.job), view.jobs.get(change.job)
                compares.append(modified_at(health, kept.mod) if kept else absent(health))
                ops.append(Put(key, encode(ticket), lease=int(ticket.session, 16)))
            case Remove():
                ops.append(Delete(key))
            case Grant(token=token, restored=restored, lost=lost):
                old = _ticket(view, change.job)
                new = replace(old, state=TicketState.GRANTED, token=token, restored=restored, lost=lost)
                ops.append(Put(key, encode(new), ignore_lease=True))
            case Refuse(reason=reason, why=why):
                old = _ticket(view, change.job)
                new = replace(old, state=TicketState.REFUSED, reason=reason, why=why)
                ops.append(Put(key, encode(new), ignore_lease=True))


def _ticket(view: GroupView, job: str) -> Ticket:
    kept: Kept[Ticket] | None = view.ticket(job)
    assert kept is not None, f"a decision about {job}, which has no ticket in the view"
    return kept.value
