# SPDX-License-Identifier: Apache-2.0
"""Clients: what they ask for, what befalls them, and the processes that they start once they have the turn."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.explore.bridge import Request
from chaos.explore.etcd import settled
from chaos.explore.faults import Budget
from chaos.explore.sessions import Standing, asks
from chaos.explore.state import LOST, LOST_UNDER_COMMIT, Process, State, in_force, put

NO_TICKET, WAITING = Standing(""), Standing("WAITING")


def requests(state: State, budget: Budget) -> Iterator[tuple[Request, str, bool]]:
    """What clients may ask of a replica: the request, the fault that it takes, and whether it is sent by itself."""
    for job, ticket in enumerate(state.tickets):
        standing = Standing(ticket.state, ticket.ghost) if ticket else NO_TICKET
        for asked in asks(standing):
            fault = "cancel" if standing == WAITING else ""
            if not fault or budget.left(state, fault):
                request = Request(asked.what, job, state.sessions[job], asked.current, asked.token)
                yield request, fault, asked.by_itself


def repeated(state: State, budget: Budget) -> Iterator[tuple[Request, str, bool]]:
    """Requests of the past that may arrive once more, at any time: of the same acquire and turn, or of older ones.

    A session has always sent some before; that this one may not have makes no difference to the replica.
    """
    if budget.left(state, "repeat"):
        for job, life in enumerate(state.sessions):
            for current in (True, False):
                if state.tickets[job] is not None or not current:
                    yield Request("acquire", job, life, current), "repeat", False
            yield from _yields_again(state, job, life)
            yield Request("cancel", job, life, current=False), "repeat", False


def _yields_again(state: State, job: int, life: int) -> Iterator[tuple[Request, str, bool]]:
    yield Request("yield", job, life, token=False), "repeat", False
    ticket = state.tickets[job]
    if ticket is None or not ticket.current:
        yield Request("yield", job, life), "repeat", False
    elif life > 1:
        yield Request("yield", job, life - 1), "repeat", False


def events(state: State, jobs: tuple[str, ...], budget: Budget) -> Iterator[tuple[str, State]]:
    """What befalls clients, and what they do without asking."""
    for job, name in enumerate(jobs):
        if budget.left(state, "ends"):
            yield from _ends(state, job, name, budget)
        ticket = state.tickets[job]
        if ticket is None:
            continue
        if budget.left(state, "expire"):
            after = _ended(state, job, name, died=False)
            yield f"{name}: its session ends", after._replace(faults=budget.spent(state, "expire"))
        if budget.left(state, "die"):
            after = _ended(state, job, name, died=True)
            yield f"{name}: its client dies", after._replace(faults=budget.spent(state, "die"))
        bare = any(_may_start(state, job, place) for place in range(len(state.nodes)))
        if ticket.state == "GRANTED" and ticket.current and not ticket.ghost and bare:
            yield f"{name}: starts its processes", _started(state, job, ticket.session)


def _ends(state: State, job: int, name: str, budget: Budget) -> Iterator[tuple[str, State]]:
    faults = budget.spent(state, "ends")
    for place, node in enumerate(state.nodes):
        if node.processes[job] is not None:
            after = node._replace(
                processes=put(node.processes, job, None), helped=tuple(one for one in node.helped if one != job)
            )
            nodes = put(state.nodes, place, after)
            yield f"{name}: its process on n{place + 1} ends", state._replace(nodes=nodes, faults=faults)


def _ended(state: State, job: int, name: str, *, died: bool) -> State:
    """The lease ends and takes the ticket with it. Whether a turn was lost by it, the model notes for itself.

    Who was about to have the turn loses it only if the switch ends with its job on (`etcd.write`).
    """
    ticket, turn = state.tickets[job], state.turn
    assert ticket is not None
    incoming = turn.phase == "COMMITTING" and turn.incoming == name and turn.incoming_ticket == ticket.create
    lost, lost_by, sessions = state.lost, state.lost_by, state.sessions
    if ticket.state == "GRANTED" or incoming:
        lost = put(lost, job, LOST_UNDER_COMMIT if incoming else LOST)
    if ticket.state == "GRANTED" and turn.phase == "HELD":
        lost_by = put(lost_by, job, lost_by[job] | 1 << ticket.session)
    if died:
        sessions = put(sessions, job, sessions[job] + 1)
    tickets = put(state.tickets, job, None)
    after = state._replace(tickets=tickets, lost=lost, lost_by=lost_by, sessions=sessions)
    return settled(after)


def _started(state: State, job: int, session: int) -> State:
    """A job that was granted the turn starts what it has not got (protocol rule 9), on the nodes in force.

    Not where the agent is away: what begins there nobody sees, and once the node is dropped nobody knows of it.
    """
    nodes = tuple(
        node._replace(processes=put(node.processes, job, Process("RUNNING", session)))
        if _may_start(state, job, place)
        else node
        for place, node in enumerate(state.nodes)
    )
    return state._replace(nodes=nodes)


def _may_start(state: State, job: int, place: int) -> bool:
    node = state.nodes[place]
    return node.processes[job] is None and node.up and bool(node.registered) and in_force(state.turn, place)
