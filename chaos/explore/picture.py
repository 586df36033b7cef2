# SPDX-License-Identifier: Apache-2.0
"""From a state of the model to the `GroupView` that the production core is given.

Nodes and jobs are named as the caller likes: the core goes through them in the order of their names, and which comes
first must not matter. The names note whether it does (`order`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import permutations, product
from typing import Any, TypeVar

from chaos.explore.device import client_process, processes_of
from chaos.explore.memo import Memo
from chaos.explore.order import ByName, Name, Order
from chaos.explore.size import Size
from chaos.explore.state import (
    NO_TURN,
    PARDONED,
    QUARANTINED,
    Answer,
    NodeState,
    State,
    TicketState,
    TurnState,
    in_force,
)
from coordinator.decide import GroupView, Wait
from coordinator.decide import NodeState as Node
from coordinator.decide.core import decide
from ledger.kept import Kept
from ledger.queue import Queue
from ledger.records import (
    Ack,
    Agent,
    Blocked,
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
    NodeDevices,
    Outcome,
    Phase,
    Pinned,
    Process,
    Resident,
    ResidentKind,
    Ticket,
    Turn,
    Unrestored,
)
from ledger.records import TicketState as Standing

GROUP = "g"
EPOCH, TOKEN, SPEC, PROCESSES, DIRECTIVE, TURN, REVISION, TICKET = 40, 30, 20, 10, 50, 70, 100, 60
"""What stands for "the current one" in the view of a state; of the spec and the tickets, where they begin."""

WANTED, GHOST = 2, 1
"""Sequence numbers: of the acquire that a client wants, and of one of the past."""

_Made = TypeVar("_Made")

_PARTS = 20_000
"""Of so many parts of views at most the records are remembered, for each way to name things."""

BAD = Job(health=Health.QUARANTINED, why="at fault")
HEALTH = {QUARANTINED: BAD, PARDONED: Job(health=Health.OK)}


def session(job: int, life: int) -> str:
    """The id of a job's session."""
    return f"{job + 1:x}{life:x}"


@dataclass(frozen=True, slots=True)
class Picture:
    """Makes views.

    Attributes:
        names, jobs, devices: what nodes, jobs and the device of each node are called here, by their places.
        order: of these names.
        parts: of views, as they are named here, each with what was asked of the order of names as it was made.
    """

    size: Size
    names: tuple[Name, ...]
    jobs: tuple[Name, ...]
    devices: tuple[Name, ...]
    order: Order
    parts: Memo[object, tuple[Any, int]]

    @classmethod
    def all(cls, size: Size) -> Iterator[Picture]:
        """One for each way to name nodes and jobs; first the names as they are."""
        for names, jobs in product(permutations(size.node_names), permutations(size.job_names)):
            order = Order()
            devices = order.named([f"gpu-{name}" for name in names])
            yield cls(size, order.named(names), order.named(jobs), devices, order, Memo(_PARTS))

    def view(self, state: State) -> GroupView:
        """The picture that a replica has of this state, passed waits included."""
        passed: frozenset[Wait] = frozenset()
        while True:
            view = self._view(state, passed)
            if not state.passed:
                return view
            more = passed | {wait for wait in decide(view).waits if wait.kind.value in state.passed}
            if more == passed:
                return view
            passed = more

    def name(self, node: str) -> str:
        """What the node that the model calls ``node`` is called here."""
        return self.names[int(node[1:]) - 1] if node else ""

    def model_name(self, name: str) -> str:
        """The other way round."""
        return f"n{self.names.index(name) + 1}" if name else ""

    def job(self, job: str) -> str:
        """What the job that the model calls ``job`` is called here."""
        return self.jobs[self.size.job_names.index(job)] if job else ""

    def model_job(self, name: str) -> str:
        """The other way round."""
        return self.size.job_names[self.jobs.index(name)] if name else ""

    def in_model(self, text: str) -> str:
        """What is said of nodes, in the model's names."""
        return re.sub(r"\bn\d\b", lambda found: self.model_name(found[0]), text)

    def _view(self, state: State, passed: frozenset[Wait]) -> GroupView:
        there = state.turn.phase != NO_TURN
        return GroupView(
            name=GROUP,
            revision=REVISION,
            spec=self._spec(state) if state.spec.there else None,
            turn=self._once(self._turn, state.turn) if there else None,
            tickets=self._once(self._queue, state.tickets),
            nodes={
                name: self._once(self._node, node, place)
                for place, (name, node) in enumerate(zip(self.names, state.nodes, strict=True))
                if self._is_of_the_group(state, place)
            },
            jobs={
                name: Kept(name, HEALTH[said], said, said)
                for name, said in zip(self.jobs, state.quarantined, strict=True)
                if said
            },
            passed=passed,
        )

    def _is_of_the_group(self, state: State, place: int) -> bool:
        """As `coordinator.picture` has it: the turn or the spec names the node, or the group has a claim there."""
        named = state.spec.there and place in self.size.generations[state.spec.generation]
        return named or in_force(state.turn, place) or state.nodes[place].claimed == "ours"

    def _once(self, make: Callable[..., _Made], *of: object) -> _Made:
        """A part of a view, made once; whoever has it has asked what was asked of the order of names to make it."""
        found = self.parts.get(of)
        if found is None:
            before, self.order.asked = self.order.asked, 0
            found = self.parts[of] = (make(*of), self.order.asked)
            self.order.asked = before
        self.order.asked |= found[1]
        made: _Made = found[0]
        return made

    def _queue(self, tickets: tuple[TicketState | None, ...]) -> Queue:
        kept = (
            Kept(self.jobs[job], self.ticket(job, one), TICKET + one.create, TICKET + one.create)
            for job, one in enumerate(tickets)
            if one
        )
        return reduce(Queue.put, kept, Queue(by_job=ByName()))

    def _spec(self, state: State) -> Kept[GroupSpec]:
        places = sorted(self.size.generations[state.spec.generation], key=self.names.__getitem__)
        nodes = tuple(NodeDevices(self.names[place], (self.devices[place],)) for place in places)
        spec = GroupSpec(nodes=nodes, policy=self.size.policy, deleting=state.spec.deleting, force=state.spec.force)
        mod = SPEC + state.spec.generation
        return Kept("spec", spec, SPEC, mod)

    def _node(self, node: NodeState, place: int) -> Node:
        name, device = self.names[place], self.devices[place]
        highest = (GroupEpoch(GROUP, EPOCH + 1),) if node.ahead else ()
        owner = {"ours": GROUP, "theirs": "h"}.get(node.claimed, "")
        records = processes_of(node.records, self.jobs)
        # What the agents were told is read by the core where there is no turn; else only what an answer is to.
        return Node(
            agent=Kept(name, Agent(highest=highest), node.registered, node.registered) if node.registered else None,
            directive=_told(name, node.directive.kind) if node.directive and not node.untold else None,
            ack=Kept(name, self._ack(node.answer, current=node.current), 55, 55) if node.answer else None,
            processes=Kept(name, records, PROCESSES, PROCESSES) if node.recorded else None,
            claims={device: Kept(device, Claim(group=owner), 4, 4)} if owner else {},
            draining=node.draining,
        )

    def _turn(self, turn: TurnState) -> Kept[Turn]:
        job = self.size.job_names.index
        resident = Resident(
            ResidentKind[turn.resident],
            self.job(turn.resident_job),
            Ended[turn.ended],
            client_process(job(turn.resident_job), turn.lost_session) if turn.lost_session else None,
        )
        incoming = Incoming(
            self.job(turn.incoming),
            TICKET + turn.incoming_ticket if turn.incoming_ticket else 0,
            client_process(job(turn.incoming), turn.incoming_session) if turn.incoming_session else None,
            turn.cancelled,
        )
        holder = None
        if turn.holder:
            index, life = job(turn.holder), turn.holder_session
            holder = Holder(self.job(turn.holder), session(index, life), client_process(index, life))
        changed = PROCESSES - 1 if turn.pin_changed else PROCESSES
        blocked = Blocked("said", self.name(turn.blocked), turn.blamed, turn.killing)
        record = Turn(
            phase=Phase[turn.phase],
            epoch=EPOCH,
            token=TOKEN,
            yielded_token=TOKEN if turn.yielded else TOKEN - 1,
            holder=holder,
            resident=resident,
            incoming=incoming if turn.switching else None,
            nodes=tuple(sorted(map(self.name, turn.nodes))),
            leaving=tuple(sorted(map(self.name, turn.leaving))),
            generation=SPEC + turn.generation,
            attempt=turn.attempt,
            blocked=blocked if turn.blocked else None,
            pinned=Pinned(self.job(turn.pinned), "said", changed) if turn.pinned else None,
            paused=turn.paused,
            kill=turn.kill,
            unrestored=Unrestored(self.name(turn.unrestored), self.job(turn.unrestored_job), BAD.why)
            if turn.unrestored
            else None,
            passed_over=turn.passed_over,
        )
        return Kept("turn", record, TURN - 1, TURN)

    def ticket(self, job: int, one: TicketState) -> Ticket:
        """The record of a ticket."""
        return Ticket(
            session=session(job, one.session),
            process=client_process(job, one.session),
            sequence=GHOST if one.ghost else WANTED,
            state=Standing[one.state],
            token=(TOKEN if one.current else TOKEN - 1) if one.state == "GRANTED" else 0,
            priority=self.size.priority(job),
            groups=(GROUP, "h") if job in self.size.several else (),
        )

    def _ack(self, answer: Answer, *, current: bool) -> Ack:
        return Ack(
            directive_revision=DIRECTIVE if current else DIRECTIVE - 1,
            epoch=EPOCH,
            outcome=Outcome[answer.outcome],
            fault=Fault[answer.fault],
            failure=Failure[answer.failure],
            job=self.job(answer.job),
            why="said",
            highest_epoch=EPOCH + 1 if answer.outcome == "STALE" else 0,
            lost=(Process(),) if answer.lost else (),
            restored=answer.restored,
        )


def _told(name: str, kind: str) -> Kept[Directive]:
    return Kept(name, Directive(epoch=EPOCH, kind=DirectiveKind[kind]), DIRECTIVE, DIRECTIVE)
