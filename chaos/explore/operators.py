# SPDX-License-Identifier: Apache-2.0
"""Operators: what they ask for, and what they and others change in etcd by themselves."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.explore.bridge import Request
from chaos.explore.faults import Budget
from chaos.explore.size import Size
from chaos.explore.state import LOST, NO_TURN, Snapshot, SpecState, State, TurnState, in_force, put


def requests(state: State, budget: Budget) -> Iterator[tuple[Request, str, bool]]:
    """As `clients.requests`."""
    for job in range(len(state.quarantined)):
        if budget.left(state, "evict"):
            yield Request("evict", job), "evict", False
        if budget.left(state, "pardon"):
            yield Request("pardon", job), "pardon", False
    if state.turn.paused:
        yield Request("resume"), "", False
        yield Request("pause"), "", False  # which is so already
    elif budget.left(state, "pause"):
        yield Request("pause"), "pause", False


def events(state: State, size: Size, budget: Budget) -> Iterator[tuple[str, State]]:
    """What is written into etcd beside the core."""
    if budget.left(state, "restored") and state.snapshot is None and state.turn.phase != NO_TURN:
        yield (
            "a backup of etcd is made",
            state._replace(snapshot=Snapshot(state.turn, state.tickets, state.quarantined)),
        )
    spec = state.spec
    if spec.there and not spec.deleting:
        if budget.left(state, "respec") and spec.generation + 1 < len(size.generations):
            following = SpecState(generation=spec.generation + 1)
            yield from _wish(state, budget, "respec", "the group has a new spec", following)
        if budget.left(state, "delete"):
            yield from _wish(state, budget, "delete", "the group is to be deleted", spec._replace(deleting=True))
    elif not spec.there and state.turn.phase == NO_TURN and not any(state.tickets) and budget.left(state, "delete"):
        yield from _wish(state, budget, "delete", "the group is made anew", SpecState(generation=spec.generation))
    if spec.there and not spec.force and budget.left(state, "force"):
        yield from _wish(state, budget, "force", "an operator insists", spec._replace(force=True))
    if state.turn.phase != NO_TURN and budget.left(state, "wipe"):
        yield "the turn is deleted by hand", _wiped(state, budget)
    for place, node in enumerate(state.nodes):
        name = f"n{place + 1}"
        changes = []
        if node.draining:
            changes.append(("", f"{name} is not drained any more", node._replace(draining=False)))
        elif budget.left(state, "drain") and in_force(state.turn, place):
            changes.append(("drain", f"{name} is drained", node._replace(draining=True)))
        if node.claimed == "theirs":
            changes.append(("", f"another group gives up the device of {name}", node._replace(claimed="")))
        elif not node.claimed and budget.left(state, "taken"):
            changes.append(("taken", f"another group claims the device of {name}", node._replace(claimed="theirs")))
        if node.directive is not None and not node.untold and budget.left(state, "erase"):
            saying = node.saying and node.saying._replace(current=False)
            erased = node._replace(untold=True, current=False, saying=saying)
            changes.append(("erase", f"the directive of {name} is deleted by hand", erased))
        for fault, what, after in changes:
            faults = budget.spent(state, fault) if fault else state.faults
            yield what, state._replace(nodes=put(state.nodes, place, after), faults=faults)


def _wiped(state: State, budget: Budget) -> State:
    """Nobody knows any more who holds the turn, nor how anybody's turn ended. All else is there."""
    granted = [ticket is not None and ticket.state == "GRANTED" for ticket in state.tickets]
    lost = tuple(LOST if was or held else 0 for was, held in zip(state.lost, granted, strict=True))
    pending = tuple(one for one in state.pending if not one.effect.guards.turn)
    faults = budget.spent(state, "wipe")
    by = (0,) * len(lost)
    return state._replace(turn=TurnState(), passed=(), pending=pending, lost=lost, lost_by=by, faults=faults)


def _wish(state: State, budget: Budget, fault: str, what: str, spec: SpecState) -> Iterator[tuple[str, State]]:
    pending = tuple(one._replace(wish=False) for one in state.pending)
    pending = tuple(one for one in pending if not one.effect.guards.spec)
    yield what, state._replace(spec=spec, pending=pending, faults=budget.spent(state, fault))
