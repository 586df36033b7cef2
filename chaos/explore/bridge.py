# SPDX-License-Identifier: Apache-2.0
"""Between the model and the production core: it is asked about a state, and its `Decision` becomes an `Effect`."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import coordinator.decide.spec
from chaos.explore.coverage import Coverage
from chaos.explore.device import life_of
from chaos.explore.memo import Memo
from chaos.explore.picture import EPOCH, GHOST, GROUP, SPEC, TICKET, TOKEN, WANTED, Picture, session
from chaos.explore.size import Size
from chaos.explore.state import (
    DirectiveState,
    Effect,
    Guards,
    NodeState,
    State,
    TicketChange,
    TicketState,
    TurnState,
)
from chaos.explore.symmetry import Names, Symmetry
from coordinator.apply.transaction import transaction
from coordinator.decide import Decision, Grant, GroupView, Refuse, Remove, Verdict, Wait, commands, core
from coordinator.decide.commands import Nothing, Refusal
from coordinator.decide.committing import KILL_AT_ATTEMPT
from coordinator.decide.decision import Create
from coordinator.decide.queue import AGING_TURNS
from coordinator.repair import restored
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
    Turn,
    Unrestored,
)
from ledger.records import TicketState as Standing

KEYS = Keys("/explored/")
_Answer = TypeVar("_Answer")


class LeaseLost(Exception):
    """A transaction would have taken a ticket off its session's lease (invariant 7)."""


class Answered(NamedTuple):
    """What a replica makes of one view: an effect and why, or neither; and the waits that it wants."""

    effect: Effect | None = None
    why: str = ""
    waits: frozenset[Wait] = frozenset()


class Request(NamedTuple):
    """What a client or an operator asks for.

    Attributes:
        session: the client's life that asks.
        current: it is about the acquire that the client wants now, not about one of the past.
        token: it names the turn's token, not an older one.
    """

    what: str
    job: int = 0
    session: int = 0
    current: bool = True
    token: bool = True


@dataclass(frozen=True, slots=True)
class _Known:
    """Of one picture, the answers to what was asked about it, and what `Core.kept` is used for."""

    answers: dict[Request, tuple[Answered, ...]] = field(default_factory=dict)
    beside: dict[object, Any] = field(default_factory=dict)


DECIDE = Request("decide")
NAMELESS = frozenset({"decide", "pause", "resume"})
"""Requests that are about no job."""

Seen = tuple[object, ...]

_PICTURES = 50_000
"""Of so many at most the answers are remembered."""


@dataclass(slots=True)
class Core:
    """The production core, asked once about each picture that it can tell apart.

    What is next may depend on the names of nodes and jobs: it is asked about each way to name them. The first answer is
    that for the names as they are, the others follow if they are other ones.

    Attributes:
        symmetry: if given, what is known of a picture is known of those that differ from it by names alone. The words
            for why are then those of the first one that was asked about.
    """

    size: Size
    coverage: Coverage | None = None
    symmetry: Symmetry | None = None
    why: dict[Effect, str] = field(default_factory=dict)
    _known: dict[Seen, _Known] = field(default_factory=lambda: Memo(_PICTURES))
    _last: tuple[State, _Known] | None = None
    _pictures: tuple[Picture, ...] = ()
    _changes: tuple[tuple[Names, Names], ...] = ()
    _asked: int = 0

    def __post_init__(self) -> None:
        jobs, nodes = self.size.job_names, self.size.node_names
        orders = itertools.product(itertools.permutations(nodes), itertools.permutations(jobs))
        every = tuple(Picture(self.size, of_nodes, of_jobs) for of_nodes, of_jobs in orders)
        self._pictures = every if self.size.symmetry else every[:1]
        self._changes = self.symmetry.changes() if self.symmetry and self.size.symmetry else ()

    @property
    def asked(self) -> int:
        """How many different questions it was asked."""
        return self._asked

    def decide(self, state: State) -> tuple[Answered, ...]:
        """What `decide` says; at least one answer."""
        return self.ask(state, DECIDE)

    def ask(self, state: State, request: Request) -> tuple[Answered, ...]:
        """What a client's or an operator's request would do; at least one answer."""
        known = self._of(state).answers
        found = known.get(request)
        if found is None:
            found = known[request] = self._of_another(state, request) or self._answers(state, request)
            for one in found:
                if one.effect is not None:
                    self.why.setdefault(one.effect, one.why)
        return found

    def _answers(self, state: State, request: Request) -> tuple[Answered, ...]:
        answers: dict[tuple[Effect | None, frozenset[Wait]], Answered] = {}
        for picture in self._pictures:
            answer = self._answer(picture, state, request)
            answers.setdefault((answer.effect, answer.waits), answer)  # in whatever words
        self._asked += 1
        return tuple(answers.values())

    def _of_another(self, state: State, request: Request) -> tuple[Answered, ...] | None:
        """What was answered about a picture that differs from this one by names, in the names of this one."""
        bare = state._replace(pending=(), snapshot=None)
        for names, back in self._changes:
            assert self.symmetry is not None
            known = self._known.get(_key(self.symmetry.renamed(bare, names)))
            asked = request if request.what in NAMELESS else request._replace(job=names.jobs[request.job])
            if known and (found := known.answers.get(asked)):
                effect = self.symmetry.effect
                return tuple(one._replace(effect=one.effect and effect(one.effect, back)) for one in found)
        return None

    def kept(self, state: State) -> dict[object, Any]:
        """A place to keep what follows from the picture of this state, and from the key that it is kept by."""
        return self._of(state).beside

    def _of(self, state: State) -> _Known:
        """What is known of this picture. Most questions are about the state that the last one was about."""
        if self._last is not None and not any(map(operator.is_not, _about(state), _about(self._last[0]))):
            return self._last[1]
        key = _key(state)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Known()
        self._last = (state, known)
        return known

    def restored(self, snapshot: State) -> Effect:
        """What `timeslice repair --restored` does to this state of the ledger, before any replica starts."""
        picture = self._pictures[0]
        view = picture.view(snapshot)
        decision = restored(view)
        assert decision is not None
        return self._effect(picture, view, decision)

    def _answer(self, picture: Picture, state: State, request: Request) -> Answered:
        view = picture.view(state)

        def asked() -> Verdict | Decision | Nothing:
            return core.decide(view) if request is DECIDE else _command(picture, view, request)

        answer = self._run(asked)
        if isinstance(answer, Verdict):
            if answer.decision is None:
                return Answered(waits=answer.waits)
            why = picture.in_model(answer.decision.why)
            return Answered(self._effect(picture, view, answer.decision), why, answer.waits)
        if isinstance(answer, Decision):
            return Answered(self._effect(picture, view, answer), picture.in_model(answer.why))
        return Answered()

    def _run(self, asked: Callable[[], _Answer]) -> _Answer:
        coordinator.decide.spec.AT_ONCE = self.size.at_once  # models of several sizes may share a process
        return self.coverage.call(asked) if self.coverage else asked()

    # ------------------------------------------------------------------------------------------------ an effect

    def _effect(self, picture: Picture, view: GroupView, decision: Decision) -> Effect:
        jobs, places = picture.jobs, {name: place for place, name in enumerate(picture.names)}
        after, highest = decision.turn, view.highest_epoch()
        new_epoch = after is not None and (view.turn is None or after.epoch != EPOCH)
        stale = any(node.ack and node.ack.value.outcome is Outcome.STALE for node in view.nodes.values())
        return Effect(
            guards=self._guards(picture, view, decision),
            turn=self._turn_state(picture, after) if after else None,
            new_epoch=new_epoch,
            overtakes=new_epoch and (stale or highest > EPOCH),
            new_token=after is not None and after.token != TOKEN,
            tickets=tuple(sorted(_change(picture, change) for change in decision.tickets)),
            directives=tuple(
                sorted((places[node], _directive(picture, one)) for node, one in decision.directives.items())
            ),
            health=tuple(
                sorted((jobs.index(job), one.health is Health.QUARANTINED) for job, one in decision.health.items())
            ),
            claim=tuple(sorted(places[node] for node, _ in decision.claim)),
            unclaim=tuple(sorted(places[node] for node, _ in decision.unclaim)),
            forget=tuple(sorted(places[node] for node in decision.forget)),
            removed=decision.remove_group,
        )

    def _guards(self, picture: Picture, view: GroupView, decision: Decision) -> Guards:
        """What the production transaction compares. What cannot change in the model is left out."""
        jobs, places = picture.jobs, {name: place for place, name in enumerate(picture.names)}
        turn = spec = empty = False
        tickets: dict[int, int] = {}
        health: dict[int, int] = {}
        away: list[int] = []
        free: list[int] = []
        kept: list[int] = []
        written = self._run(lambda: transaction(KEYS, view, decision))
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
                raise LeaseLost(f"invariant 7: a ticket is taken off its lease: {decision.why}")
        sort = (tuple(sorted(tickets.items())), tuple(sorted(health.items())))
        return Guards(turn, spec, *sort, empty, tuple(sorted(away)), tuple(sorted(free)), tuple(sorted(kept)))

    def _turn_state(self, picture: Picture, turn: Turn) -> TurnState:
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
            granted, ghost = ticket.state is Standing.GRANTED, ticket.sequence == GHOST
            return TicketChange(job(change.job), "create", 0, life_of(ticket.process), granted, ghost)
    raise AssertionError(change)


def _command(picture: Picture, view: GroupView, request: Request) -> Decision | Nothing:
    job, life = request.job, request.session
    name, sequence = picture.jobs[job], WANTED if request.current else GHOST
    try:
        match request.what:
            case "acquire":
                wanted = picture.ticket(job, TicketState(0, life, ghost=not request.current))
                return commands.acquire(view, name, wanted)
            case "yield":
                return commands.give_back(view, name, session(job, life), TOKEN if request.token else TOKEN - 1)
            case "cancel":
                return commands.cancel(view, name, session(job, life), sequence)
            case "evict":
                return commands.evict(view, name)
            case "pardon":
                return commands.unquarantine(view, name)
            case "pause" | "resume":
                return commands.pause(view, paused=request.what == "pause")
            case unknown:
                raise AssertionError(unknown)
    except Refusal as refusal:
        return Nothing(refusal.message)


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


def _about(state: State) -> Seen:
    return (state.turn, state.spec, state.tickets, state.quarantined, state.nodes, state.passed)


def _key(state: State) -> Seen:
    """What a replica sees of a state."""
    return (*_about(state)[:4], tuple(map(_seen, state.nodes)), state.passed)


def _seen(node: NodeState) -> Seen:
    """What a replica sees of a node."""
    told = node.directive is not None and not node.untold
    ledger = (told, node.answer, node.current, node.records, node.recorded, node.claimed, node.draining)
    return (node.registered, node.ahead, *ledger)
