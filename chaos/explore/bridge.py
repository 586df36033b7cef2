# SPDX-License-Identifier: Apache-2.0
"""Between the model and the production core: a state becomes a `GroupView`, a `Decision` becomes an `Effect`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from chaos.explore import state as model
from chaos.explore.state import (
    Answer,
    DirectiveState,
    Effect,
    Guards,
    State,
    TicketChange,
    TurnState,
)
from coordinator.apply.transaction import transaction
from coordinator.decide import Decision, Grant, GroupView, NodeState, Refuse, Remove, Verdict, Wait, commands, core
from coordinator.decide.commands import Nothing, Refusal
from coordinator.decide.committing import KILL_AT_ATTEMPT
from coordinator.decide.decision import Create
from coordinator.repair import restored
from ledger.etcd.txn import Put
from ledger.kept import Kept
from ledger.keys import Keys, Kind
from ledger.queue import Queue
from ledger.records import (
    Ack,
    Agent,
    Blocked,
    Claim,
    Directive,
    Ended,
    Failure,
    Fault,
    GroupSpec,
    Health,
    Holder,
    Incoming,
    Job,
    JobProcesses,
    NodeDevices,
    NodeLostPolicy,
    Outcome,
    Phase,
    Pinned,
    Policy,
    Process,
    Processes,
    ProcessRecord,
    Resident,
    ResidentKind,
    Ticket,
    TicketState,
    Turn,
    Unrestored,
)

EPOCH, TOKEN, SPEC, PROCESSES, DIRECTIVE, TURN, REVISION = 40, 30, 20, 10, 50, 70, 100
"""The numbers that stand for "the current one" in the view of a state."""

KEYS = Keys("/explored/")

POLICY = Policy(node_lost=NodeLostPolicy.DROP)
"""Nothing comes of it unless the budget has the fault `drop`."""

BAD = Job(health=Health.QUARANTINED, why="at fault")


class LeaseLost(Exception):
    """A transaction would have taken a ticket off its session's lease (invariant 7)."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a replica makes of one view: an effect and why, or neither; and the waits that it wants."""

    effect: Effect | None = None
    why: str = ""
    waits: frozenset[Wait] = frozenset()


Ask = Callable[[GroupView], Decision | Nothing]
Seen = tuple[object, ...]


@dataclass(slots=True)
class Core:
    """The production core, asked once about each picture that it can tell apart."""

    jobs: tuple[str, ...]
    nodes: tuple[str, ...]
    traced: Callable[[Callable[[], object]], object] | None = None
    why: dict[Effect, str] = field(default_factory=dict)
    _known: dict[Seen, Answered] = field(default_factory=dict)

    @property
    def asked(self) -> int:
        """How many different questions it was asked."""
        return len(self._known)

    def decide(self, state: State) -> Answered:
        """What `decide` says."""
        return self._ask(state, "decide", -1)

    def command(self, state: State, what: str, job: int) -> Answered:
        """What a client's or an operator's request would do."""
        return self._ask(state, what, job)

    def _ask(self, state: State, what: str, job: int) -> Answered:
        nodes = tuple((node.registered, node.answer, node.apart is not None, _recorded(node)) for node in state.nodes)
        told = state.directive is not None
        key = (what, job, state.turn, state.tickets, state.quarantined, told, nodes, state.passed, state.sessions)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._answer(state, what, job)
            if found.effect is not None:
                self.why[found.effect] = found.why
        return found

    def _answer(self, state: State, what: str, job: int) -> Answered:
        view = self.view(state)

        def asked() -> object:
            return core.decide(view) if what == "decide" else self._command(view, state, what, job)

        answer = self.traced(asked) if self.traced else asked()
        if isinstance(answer, Verdict):
            if answer.decision is None:
                return Answered(waits=answer.waits)
            return Answered(self._effect(view, answer.decision), answer.decision.why, answer.waits)
        if isinstance(answer, Decision):
            return Answered(self._effect(view, answer), answer.why)
        return Answered()

    def _command(self, view: GroupView, state: State, what: str, job: int) -> Decision | Nothing:
        name, session = self.jobs[job], _session(job, state.sessions[job])
        try:
            match what:
                case "acquire":
                    ticket = Ticket(session=session, process=_process(job, state.sessions[job]), sequence=1)
                    return commands.acquire(view, name, ticket)
                case "yield":
                    return commands.give_back(view, name, session, TOKEN)
                case "cancel":
                    return commands.cancel(view, name, session, 1)
                case "evict":
                    return commands.evict(view, name)
                case _:
                    return commands.pause(view, paused=what == "pause")
        except Refusal as refusal:
            return Nothing(refusal.message)

    def restored(self, snapshot: State) -> Effect:
        """What `timeslice repair --restored` does to this state of the ledger, before any replica starts."""
        view = self.view(snapshot)
        decision = restored(view)
        assert decision is not None
        return self._effect(view, decision)

    # ------------------------------------------------------------------------------------------------ a view

    def view(self, state: State) -> GroupView:
        """The picture that a replica has of this state, passed waits included."""
        passed: frozenset[Wait] = frozenset()
        while True:
            view = self._view(state, passed)
            if not state.passed:
                return view
            more = passed | {wait for wait in core.decide(view).waits if wait.kind.value in state.passed}
            if more == passed:
                return view
            passed = more

    def _view(self, state: State, passed: frozenset[Wait]) -> GroupView:
        spec = GroupSpec(nodes=tuple(NodeDevices(node, (f"gpu-{node}",)) for node in self.nodes), policy=POLICY)
        tickets = [
            Kept(
                self.jobs[job],
                self._ticket(job, ticket.session, ticket.state, ticket.current),
                *[60 + ticket.create] * 2,
            )
            for job, ticket in enumerate(state.tickets)
            if ticket
        ]
        nodes: dict[str, NodeState] = {}
        for name, node in zip(self.nodes, state.nodes, strict=True):
            told = state.directive or node.apart
            # What the agents were told is not read by the core, only that an answer is to the current directive.
            nodes[name] = NodeState(
                agent=Kept(name, Agent(), node.registered, node.registered) if node.registered else None,
                directive=Kept(name, Directive(epoch=EPOCH), DIRECTIVE, DIRECTIVE) if told else None,
                ack=Kept(name, self._ack(node.answer), 55, 55) if node.answer else None,
                processes=Kept(name, self._processes(_recorded(node)), PROCESSES, PROCESSES),
                claims={f"gpu-{name}": Kept(f"gpu-{name}", Claim(group="g"), 4, 4)},
            )
        return GroupView(
            name="g",
            revision=REVISION,
            spec=Kept("spec", spec, SPEC, SPEC),
            turn=Kept("turn", self._turn(state.turn), TURN - 1, TURN),
            tickets=Queue.of(tickets),
            nodes=nodes,
            jobs={name: Kept(name, BAD, 1, 1) for name, out in zip(self.jobs, state.quarantined, strict=True) if out},
            passed=passed,
        )

    def _turn(self, turn: TurnState) -> Turn:
        job = self.jobs.index
        resident = Resident(
            ResidentKind[turn.resident],
            turn.resident_job,
            Ended[turn.ended],
            _process(job(turn.resident_job), turn.lost_session) if turn.lost_session else None,
        )
        incoming = Incoming(
            turn.incoming,
            60 + turn.incoming_ticket if turn.incoming_ticket else 0,
            _process(job(turn.incoming), turn.incoming_session) if turn.incoming_session else None,
            turn.cancelled,
        )
        holder = None
        if turn.holder:
            index = job(turn.holder)
            holder = Holder(turn.holder, _session(index, turn.holder_session), _process(index, turn.holder_session))
        changed = PROCESSES - 1 if turn.pin_changed else PROCESSES
        return Turn(
            phase=Phase[turn.phase],
            epoch=EPOCH,
            token=TOKEN,
            holder=holder,
            resident=resident,
            incoming=incoming if turn.switching else None,
            nodes=tuple(node for node in self.nodes if node not in turn.out),
            generation=SPEC,
            attempt=turn.attempt,
            blocked=Blocked("said", turn.blocked, turn.blamed, turn.killing) if turn.blocked else None,
            pinned=Pinned(turn.pinned, "said", changed) if turn.pinned else None,
            paused=turn.paused,
            kill=turn.kill,
            unrestored=Unrestored(turn.unrestored, turn.unrestored_job, BAD.why) if turn.unrestored else None,
        )

    def _processes(self, recorded: tuple[int, ...]) -> Processes:
        return Processes(jobs=tuple(JobProcesses(self.jobs[job], (ProcessRecord(),)) for job in recorded))

    def _ticket(self, job: int, session: int, state: str, current: bool) -> Ticket:
        return Ticket(
            session=_session(job, session),
            process=_process(job, session),
            sequence=1,
            state=TicketState[state],
            token=(TOKEN if current else TOKEN - 1) if state == "GRANTED" else 0,
        )

    def _ack(self, answer: Answer) -> Ack:
        return Ack(
            directive_revision=DIRECTIVE,
            epoch=EPOCH,
            outcome=Outcome[answer.outcome],
            fault=Fault[answer.fault],
            failure=Failure[answer.failure],
            job=answer.job,
            why="said",
        )

    # ------------------------------------------------------------------------------------------------ an effect

    def _effect(self, view: GroupView, decision: Decision) -> Effect:
        after = decision.turn
        in_force = after.nodes if after else self.nodes
        told = {self._directive(one) for node, one in decision.directives.items() if node in in_force}
        assert len(told) <= 1, "all nodes are told alike where none is leaving"
        assert not (decision.claim or decision.unclaim or decision.forget or decision.remove_group)
        apart = {node: one for node, one in decision.directives.items() if node not in in_force}
        return Effect(
            guards=self._guards(view, decision),
            turn=self._turn_state(after) if after else None,
            new_epoch=after is not None and after.epoch != EPOCH,
            new_token=after is not None and after.token != TOKEN,
            tickets=tuple(self._change(change) for change in decision.tickets),
            directive=told.pop() if told else None,
            health=tuple(
                (self.jobs.index(job), record.health is Health.QUARANTINED) for job, record in decision.health.items()
            ),
            apart=tuple((self.nodes.index(node), self._directive(one)) for node, one in apart.items()),
        )

    def _guards(self, view: GroupView, decision: Decision) -> Guards:
        """What the production transaction compares. What cannot change in the model is left out."""
        turn = empty = False
        tickets: dict[int, int] = {}
        health: dict[int, int] = {}
        away: list[int] = []
        written = transaction(KEYS, view, decision)
        for compare in written.compares:
            place = KEYS.place(compare.key)
            if compare.range_end:
                empty = empty or compare.key == KEYS.tickets("g")
            elif place is not None and place.kind is Kind.TURN:
                turn = True
            elif place is not None and place.kind is Kind.TICKET:
                tickets[self.jobs.index(place.name)] = compare.number - 60 if compare.number else 0
            elif place is not None and place.kind is Kind.AGENT:
                away.append(self.nodes.index(place.node))
            elif place is not None and place.kind is Kind.JOB:
                health[self.jobs.index(place.name)] = compare.number
        for op in written.ops:
            place = KEYS.place(op.key)
            if isinstance(op, Put) and place and place.kind is Kind.TICKET and not (op.lease or op.ignore_lease):
                raise LeaseLost(decision.why)
        return Guards(turn, tuple(sorted(tickets.items())), tuple(sorted(health.items())), empty, tuple(away))

    def _change(self, change: object) -> TicketChange:
        match change:
            case Grant(job=job, create=create):
                return TicketChange(self.jobs.index(job), "grant", create - 60)
            case Refuse(job=job, create=create):
                return TicketChange(self.jobs.index(job), "refuse", create - 60)
            case Remove(job=job, create=create):
                return TicketChange(self.jobs.index(job), "remove", create - 60)
            case Create(job=job, ticket=ticket):
                granted = ticket.state is TicketState.GRANTED
                return TicketChange(self.jobs.index(job), "create", 0, _life(ticket.process), granted)
        raise AssertionError(change)

    def _turn_state(self, turn: Turn) -> TurnState:
        resident, incoming = turn.resident or Resident(), turn.incoming or Incoming()
        holder, blocked, pinned = turn.holder or Holder(), turn.blocked or Blocked(), turn.pinned or Pinned()
        unrestored = turn.unrestored or Unrestored()
        return TurnState(
            phase=turn.phase.name,
            holder=holder.job,
            holder_session=_life(holder.process),
            resident=resident.kind.name,
            resident_job=resident.job,
            ended=resident.ended.name,
            lost_session=_life(resident.lost_process),
            switching=turn.incoming is not None,
            incoming=incoming.job,
            incoming_ticket=incoming.ticket_revision - 60 if incoming.ticket_revision else 0,
            incoming_session=_life(incoming.process),
            cancelled=incoming.cancelled,
            attempt=min(turn.attempt, KILL_AT_ATTEMPT),  # beyond it only the length of a wait grows
            blocked=blocked.node,
            blamed=blocked.agent_revision,
            killing=blocked.killing,
            pinned=pinned.job,
            pin_changed=bool(pinned.job) and pinned.processes_revision < PROCESSES,
            kill=turn.kill,
            paused=turn.paused,
            out=tuple(node for node in self.nodes if node not in turn.nodes),
            unrestored=unrestored.node,
            unrestored_job=unrestored.job,
        )

    def _directive(self, told: Directive) -> DirectiveState:
        return DirectiveState(
            told.kind.name,
            told.on,
            told.keep,
            told.kill,
            told.lost_job,
            _life(told.lost_process),
            _life(told.on_process),
        )


def _recorded(node: model.NodeState) -> tuple[int, ...]:
    """The jobs with processes on record: those that have some, since what ends is seen to."""
    return tuple(job for job, process in enumerate(node.processes) if process)


def _process(job: int, life: int) -> Process:
    return Process("boot", 100 + job, life)


def _session(job: int, life: int) -> str:
    return f"{job + 1:x}{life:x}"


def _life(process: Process | None) -> int:
    return process.start_time if process else 0
