# SPDX-License-Identifier: Apache-2.0
"""Between the model and the production core: it is asked about a state, and its `Decision` becomes an `Effect`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import coordinator.decide.spec
from chaos.explore.coverage import Coverage
from chaos.explore.effects import KEYS, effect_of
from chaos.explore.memo import Memo, Shared
from chaos.explore.picture import GHOST, TOKEN, WANTED, Picture, session
from chaos.explore.size import Size
from chaos.explore.state import NO_TURN, Effect, NodeState, State, TicketState
from chaos.explore.symmetry import Names, Symmetry, inverse
from coordinator.apply.transaction import transaction
from coordinator.decide import Decision, GroupView, Verdict, Wait, commands, core
from coordinator.decide.commands import Nothing, Refusal
from coordinator.repair import restored

_Answer = TypeVar("_Answer")


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

    def by(self, names: Names) -> Request:
        """The same with the names changed."""
        return self if self.what in NAMELESS else self._replace(job=names.jobs[self.job])


_NO_CHANGE = Names((), ())


@dataclass(frozen=True, slots=True)
class _Known:
    """Of one picture, the answers to what was asked about it, and what `Core.kept` is used for.

    Attributes:
        first: the first one that was asked about of those that differ from this one by names alone: the answers are
            there. None: it is this one.
        names: the change of names to that one.
        same: every change of names that leaves this one as it is.
    """

    answers: dict[Request, tuple[Answered, ...]] = field(default_factory=dict)
    beside: dict[object, Any] = field(default_factory=dict)
    first: _Known | None = None
    names: Names = _NO_CHANGE
    same: tuple[Names, ...] = ()


DECIDE = Request("decide")
NAMELESS = frozenset({"decide", "pause", "resume"})
"""Requests that are about no job."""

Seen = tuple[object, ...]

_PICTURES = 500_000
"""Of so many at most the answers are remembered: some 1 KB each."""

_ANSWERS = 100_000
"""Of so many parts of answers at most there is one for all that are equal."""


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
    _shared: Shared = field(default_factory=lambda: Shared(_ANSWERS))
    _last: tuple[State, _Known] | None = None
    _viewed: tuple[State, dict[int, tuple[GroupView, int]]] | None = None
    _pictures: tuple[Picture, ...] = ()
    _changes: tuple[Names, ...] = ()
    _asked: int = 0

    def __post_init__(self) -> None:
        every = tuple(Picture.all(self.size))
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
        known = self._of(state)
        if known.first is None:
            found = self._found(known, request)
            if found is None:
                found = known.answers[self._shared.one(request)] = self._answers(state, request)
            return found
        there = request.by(known.names)
        found = self._found(known.first, there)
        if found is not None:
            return self._renamed(found, inverse(known.names))
        answers = self._answers(state, request)
        known.first.answers[self._shared.one(there)] = self._renamed(answers, known.names)
        return answers

    def _found(self, known: _Known, request: Request) -> tuple[Answered, ...] | None:
        """What was answered, if only to the same question by other names."""
        found = known.answers.get(request)
        if found is None:
            for names in known.same:
                if there := known.answers.get(request.by(names)):
                    return self._renamed(there, inverse(names))
        return found

    def _renamed(self, answers: tuple[Answered, ...], names: Names) -> tuple[Answered, ...]:
        assert self.symmetry is not None
        effect = self.symmetry.effect
        renamed = tuple(one._replace(effect=one.effect and effect(one.effect, names)) for one in answers)
        return self._shared.one(renamed)

    def _answers(self, state: State, request: Request) -> tuple[Answered, ...]:
        answers: dict[tuple[Effect | None, frozenset[Wait]], Answered] = {}
        ways: list[int] = []
        for picture in self._pictures:
            if any(map(picture.order.alike, ways)):
                continue  # nobody would learn that the names are other ones than in a way that was gone
            answer = self._answer(picture, state, request)
            answers.setdefault((answer.effect, answer.waits), answer)  # in whatever words
            ways.append(picture.order.asked)
        self._asked += 1
        for one in answers.values():
            if one.effect is not None:
                self.why.setdefault(one.effect, one.why)
        return self._shared.one(tuple(answers.values()))

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
            known = self._known[key] = self._unknown(state, key)
        self._last = (state, known)
        return known

    def _view(self, picture: Picture, state: State) -> GroupView:
        """The view of the state, whose questions about the order of names are asked then."""
        if self._viewed is None or self._viewed[0] is not state:
            self._viewed = (state, {})
        views = self._viewed[1]
        found = views.get(picture.order.true)
        if found is None:
            picture.order.asked = 0
            found = views[picture.order.true] = (picture.view(state), picture.order.asked)
        view, picture.order.asked = found
        return view

    def _unknown(self, state: State, key: Seen) -> _Known:
        """A picture that is asked about for the first time, unless by other names."""
        bare = state._replace(pending=(), snapshot=None)
        same: list[Names] = []
        for names in self._changes:
            assert self.symmetry is not None
            other = _key(self.symmetry.renamed(bare, names))
            known = self._known.get(other)
            if known and not known.first:
                return _Known(first=known, names=names)
            if other == key:
                same.append(names)
        return _Known(same=tuple(same))

    def restored(self, snapshot: State) -> Effect:
        """What `timeslice repair --restored` does to this state of the ledger, before any replica starts."""
        picture = self._pictures[0]
        view = picture.view(snapshot)
        decision = restored(view)
        assert decision is not None
        return self._effect(picture, view, decision)

    def _answer(self, picture: Picture, state: State, request: Request) -> Answered:
        view = self._view(picture, state)

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

    def _effect(self, picture: Picture, view: GroupView, decision: Decision) -> Effect:
        return effect_of(picture, view, decision, self._run(lambda: transaction(KEYS, view, decision)))

    def _run(self, asked: Callable[[], _Answer]) -> _Answer:
        coordinator.decide.spec.AT_ONCE = self.size.at_once  # models of several sizes may share a process
        return self.coverage.call(asked) if self.coverage else asked()


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


def _about(state: State) -> Seen:
    return (state.turn, state.spec, state.tickets, state.quarantined, state.nodes, state.passed)


def _key(state: State) -> Seen:
    """What a replica sees of a state."""
    begins = state.turn.phase == NO_TURN
    return (*_about(state)[:4], tuple(_seen(node, begins=begins) for node in state.nodes), state.passed)


def _seen(node: NodeState, *, begins: bool) -> Seen:
    """What a replica sees of a node. What it was told counts only as the group begins."""
    told = node.directive is not None and not node.untold and (node.directive.kind if begins else True)
    ledger = (told, node.answer, node.current, node.records, node.recorded, node.claimed, node.draining)
    return (node.registered, node.ahead, *ledger)
