# SPDX-License-Identifier: Apache-2.0
"""A few words in which a test says what a group looks like.

``group(head("b"), on("a"))`` is an idle group of two nodes, whose last turn was a's, with b waiting.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from coordinator.decide import Decision, GroupView, NodeState, Verdict, Wait, WaitKind, decide
from ledger.kept import Kept
from ledger.queue import Queue
from ledger.records import (
    Ack,
    Agent,
    Claim,
    Directive,
    DirectiveKind,
    Ended,
    Failure,
    Fault,
    GroupEpoch,
    GroupSpec,
    Health,
    Holder,
    Incoming,
    Job,
    JobProcesses,
    NodeDevices,
    Outcome,
    Phase,
    Policy,
    Process,
    Processes,
    ProcessRecord,
    Resident,
    ResidentKind,
    Ticket,
    TicketState,
    Turn,
)

NODES = ("n1", "n2")
EPOCH, TOKEN, SPEC, DIRECTIVE, REVISION = 40, 30, 20, 50, 100

NOBODY = Resident(ResidentKind.NOBODY)
UNKNOWN = Resident(ResidentKind.UNKNOWN)


def process(job: str, session: int = 1) -> Process:
    """The process of a job's nth session."""
    return Process("boot", ord(job) * 100 + session, session)


def on(job: str) -> Resident:
    return Resident(ResidentKind.JOB, job)


def lost(job: str) -> Resident:
    return Resident(ResidentKind.JOB, job, Ended.LOST, process(job))


def mixed(job: str, ended: Ended = Ended.CLEAN) -> Resident:
    return Resident(ResidentKind.MIXED, job, ended, process(job) if ended is Ended.LOST else None)


def ticket(job: str, state: TicketState = TicketState.WAITING, token: int = 0, create: int = 60) -> Kept[Ticket]:
    value = Ticket(session=f"s-{job}", process=process(job), sequence=1, state=state, token=token)
    return Kept(job, value, create=create, mod=create, lease=1)


def waiting(*jobs: str) -> tuple[Kept[Ticket], ...]:
    """These jobs' tickets, in this order."""
    return tuple(ticket(job, create=60 + number) for number, job in enumerate(jobs))


def granted(job: str) -> tuple[Kept[Ticket], ...]:
    return (ticket(job, TicketState.GRANTED, TOKEN, create=59),)


def said(outcome: Outcome, fault: Fault = Fault.NONE, failure: Failure = Failure.NONE, job: str = "") -> Ack:
    """An answer to the current directive."""
    return Ack(directive_revision=DIRECTIVE, epoch=EPOCH, outcome=outcome, fault=fault, failure=failure, job=job)


PREPARED, COMMITTED, RELEASED = said(Outcome.PREPARED), said(Outcome.COMMITTED), said(Outcome.RELEASED)

KIND = {
    Phase.PREPARING: DirectiveKind.PREPARE,
    Phase.COMMITTING: DirectiveKind.COMMIT,
    Phase.RELEASING: DirectiveKind.RELEASE,
}


def group(
    *tickets: Kept[Ticket],
    resident: Resident = NOBODY,
    phase: Phase = Phase.IDLE,
    holder: str = "",
    incoming: Incoming | None = None,
    acks: Mapping[str, Ack] | None = None,
    away: tuple[str, ...] = (),
    draining: tuple[str, ...] = (),
    highest: int = 0,
    quarantined: tuple[str, ...] = (),
    policy: Policy | None = None,
    deleting: bool = False,
    spec_nodes: tuple[str, ...] = NODES,
    spec_mod: int = SPEC,
    recorded: tuple[str, ...] = (),
    processes_mod: int = 10,
    passed: tuple[WaitKind, ...] = (),
    **turn: object,
) -> GroupView:
    """A group on nodes n1 and n2, one device each. Any further keyword is a field of the turn."""
    who = Holder(holder, f"s-{holder}", process(holder)) if holder else None
    value = Turn(
        phase=phase,
        epoch=EPOCH,
        token=TOKEN,
        holder=who,
        resident=resident,
        incoming=incoming,
        nodes=NODES,
        generation=SPEC,
    )
    value = replace(value, **turn)  # type: ignore[arg-type]
    spec = GroupSpec(
        nodes=tuple(NodeDevices(node, (f"gpu-{node}",)) for node in spec_nodes), policy=policy, deleting=deleting
    )
    records = Processes(jobs=tuple(JobProcesses(job, (ProcessRecord(process(job)),)) for job in recorded))
    nodes: dict[str, NodeState] = {}
    for node in sorted({*value.nodes, *spec_nodes}):
        directive = Kept(node, Directive(epoch=EPOCH, kind=KIND[phase]), 50, DIRECTIVE) if phase in KIND else None
        ack = (acks or {}).get(node)
        agent = Agent(highest=(GroupEpoch("g", highest),) if highest else ())
        nodes[node] = NodeState(
            agent=None if node in away else Kept(node, agent, 5, 5),
            directive=directive,
            ack=Kept(node, ack, 55, 55) if ack else None,
            processes=Kept(node, records, 10, processes_mod) if recorded else None,
            claims={f"gpu-{node}": Kept(f"gpu-{node}", Claim(group="g"), 4, 4)},
            draining=node in draining,
        )
    view = GroupView(
        "g",
        REVISION,
        spec=Kept("spec", spec, 20, spec_mod),
        turn=Kept("turn", value, 21, 70),
        tickets=Queue.of(tickets),
        nodes=nodes,
        jobs={job: Kept(job, Job(health=Health.QUARANTINED, why="bad"), 8, 8) for job in quarantined},
    )
    return replace(view, passed=frozenset(one for one in waits_of(view) if one.kind in passed))


def waits_of(view: GroupView) -> frozenset[Wait]:
    return decide(view).waits


def bringing(job: str, tickets: tuple[Kept[Ticket], ...] = ()) -> Incoming:
    """The incoming side of a switch to this job; with no ticket of its own it is put back."""
    own = next((one for one in tickets if one.name == job), None)
    return Incoming(job, own.create if own else 0, process(job) if own else None)


def decision(verdict: Verdict | GroupView) -> Decision:
    """The decision of a verdict, which must be there."""
    found = (decide(verdict) if isinstance(verdict, GroupView) else verdict).decision
    assert found is not None
    return found


def turn_of(verdict: Verdict | GroupView) -> Turn:
    """The turn that is to be written, which must be there."""
    turn = decision(verdict).turn
    assert turn is not None
    return turn


def apply(view: GroupView, what: Decision, acks: Mapping[str, Ack] | None = None) -> GroupView:
    """The view after a decision's turn and directives are written, and perhaps answered."""
    assert view.turn is not None and what.turn is not None
    revision = view.revision + 1
    nodes = dict(view.nodes)
    for node, directive in what.directives.items():
        ack = (acks or {}).get(node)
        kept = Kept(node, replace(ack, directive_revision=revision), revision, revision) if ack else None
        nodes[node] = replace(nodes[node], directive=Kept(node, directive, 50, revision), ack=kept)
    tickets = view.tickets
    for job in what.stands_on if what.tickets else {}:
        tickets = tickets.without(job)
    return replace(
        view,
        revision=revision + 1,
        turn=replace(view.turn, value=what.turn, mod=revision),
        nodes=nodes,
        tickets=tickets,
        passed=frozenset(),
    )
