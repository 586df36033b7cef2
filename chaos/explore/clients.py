# SPDX-License-Identifier: Apache-2.0
"""Clients: what they ask for, what befalls them, and the processes that they start once they have the turn."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.explore.etcd import settled
from chaos.explore.faults import Budget
from chaos.explore.state import LOST, LOST_UNDER_COMMIT, Process, Snapshot, State, in_force


def requests(state: State, budget: Budget) -> Iterator[tuple[int, str, str]]:
    """What each job's client (or an operator) may ask of a replica: the job, the request, the fault that it takes."""
    for job, ticket in enumerate(state.tickets):
        if ticket is None:
            if not state.quarantined[job]:
                yield job, "acquire", ""
        elif ticket.state == "GRANTED":
            yield job, "yield", ""
        elif ticket.state == "REFUSED":
            yield job, "cancel", ""
        elif budget.left(state, "cancel"):
            yield job, "cancel", "cancel"
        if budget.left(state, "evict"):
            yield job, "evict", "evict"
    if state.turn.paused:
        yield 0, "resume", ""
    elif budget.left(state, "pause"):
        yield 0, "pause", "pause"


def events(state: State, jobs: tuple[str, ...], budget: Budget) -> Iterator[tuple[str, State]]:
    """What befalls clients, and what they do without asking."""
    if budget.left(state, "restored") and state.snapshot is None:
        yield (
            "a backup of etcd is made",
            state._replace(snapshot=Snapshot(state.turn, state.tickets, state.quarantined)),
        )
    for job, name in enumerate(jobs):
        ticket = state.tickets[job]
        if ticket is None:
            continue
        if budget.left(state, "expire"):
            yield (
                f"{name}: its session ends",
                _ended(state, job, name, died=False, faults=budget.spent(state, "expire")),
            )
        if budget.left(state, "die"):
            yield f"{name}: its client dies", _ended(state, job, name, died=True, faults=budget.spent(state, "die"))
        bare = any(node.processes[job] is None and in_force(state.turn, n) for n, node in enumerate(state.nodes))
        if ticket.state == "GRANTED" and ticket.current and bare:
            yield f"{name}: starts its processes", _started(state, job, ticket.session)


def _ended(state: State, job: int, name: str, *, died: bool, faults: tuple[int, ...]) -> State:
    """The lease ends and takes the ticket with it. Whether a turn was lost by it, the model notes for itself."""
    ticket, turn = state.tickets[job], state.turn
    assert ticket is not None
    incoming = turn.phase == "COMMITTING" and turn.incoming == name and turn.incoming_ticket == ticket.create
    tickets = (*state.tickets[:job], None, *state.tickets[job + 1 :])
    lost, sessions = state.lost, state.sessions
    if ticket.state == "GRANTED" or incoming:
        lost = (*lost[:job], LOST_UNDER_COMMIT if incoming else LOST, *lost[job + 1 :])
    if died:
        sessions = (*sessions[:job], sessions[job] + 1, *sessions[job + 1 :])
    return settled(state._replace(tickets=tickets, lost=lost, sessions=sessions, faults=faults))


def _started(state: State, job: int, session: int) -> State:
    """A job that was granted the turn starts what it has not got (protocol rule 9), on the nodes in force."""
    nodes = tuple(
        node._replace(processes=(*node.processes[:job], Process("RUNNING", session), *node.processes[job + 1 :]))
        if node.processes[job] is None and in_force(state.turn, place)
        else node
        for place, node in enumerate(state.nodes)
    )
    return state._replace(nodes=nodes)
