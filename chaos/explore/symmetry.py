# SPDX-License-Identifier: Apache-2.0
"""Which states differ by names alone, and one short number for each that does not.

Jobs of one kind, nodes of one kind and replicas can change places. Replicas have no names: what they have in hand is a
set. Jobs are put in the order of their tickets, and those without one by all else that is known of them; then nodes by
all that is known of them. Where that leaves a tie the states are equal, or are searched both: never is a state taken
for another that it could be told from.

That the core goes through nodes or jobs by their names is no matter: it is asked about each way to name them
(`bridge.Core`), so more may happen here than does, and never less. An agent's device has one process of each job, in
the order of the jobs; which of several fails is a choice, so that their order does not matter either.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, TypeVar

from chaos.explore.faults import Budget
from chaos.explore.memo import Memo
from chaos.explore.size import Size
from chaos.explore.state import (
    Answer,
    DirectiveState,
    Effect,
    Guards,
    NodeState,
    Pending,
    Saying,
    Snapshot,
    State,
    TurnState,
)

_Value = TypeVar("_Value")

_PARTS = 300_000
"""Of so many parts of states at most the fingerprints are remembered, and of as many the other forms."""


class Names(NamedTuple):
    """A change of places: of each job and each node the place that it has afterwards."""

    jobs: tuple[int, ...]
    nodes: tuple[int, ...]


@dataclass(slots=True)
class Symmetry:
    """Finds the one form of a state, and its fingerprint."""

    size: Size
    _budget: Budget = field(init=False)
    _prints: dict[object, int] = field(default_factory=lambda: Memo(_PARTS))
    _renamed: dict[object, object] = field(default_factory=lambda: Memo(_PARTS))
    _job_names: tuple[str, ...] = field(init=False)
    _node_names: tuple[str, ...] = field(init=False)
    _as_they_are: Names = field(init=False)
    _kinds_of_jobs: tuple[object, ...] = field(init=False)
    _kinds_of_nodes: tuple[object, ...] = field(init=False)

    def __post_init__(self) -> None:
        size = self.size
        self._budget = Budget(dict(size.faults))
        self._job_names, self._node_names = size.job_names, size.node_names
        self._as_they_are = Names(tuple(range(size.jobs)), tuple(range(size.nodes)))
        self._kinds_of_jobs = tuple(size.kind(job) for job in range(size.jobs))
        named = size.generations
        self._kinds_of_nodes = tuple(tuple(place in one for one in named) for place in range(size.nodes))

    def canonical(self, state: State) -> State:
        """The one of the states alike that stands for all of them."""
        if not self.size.symmetry:
            return self._replicas(state)
        jobs, nodes = self._as_they_are
        order = self._jobs(state)
        if order != jobs:
            state = self.renamed(state, Names(order, nodes))
        order = self._nodes(state)
        if order != nodes:
            state = self.renamed(state, Names(jobs, order))
        return self._replicas(state)

    def fingerprint(self, state: State) -> int:
        """64 bits that stand for the state: the last `Budget.bits` for what is left of the faults, the rest by lot."""
        mark, bits = self.mark, self._budget.bits
        drawn = hash((mark(state.turn), mark(_rest(state)), *map(mark, state.nodes), *map(mark, state.pending))) & _MASK
        return drawn >> bits << bits | self._budget.number(state.faults)

    def mark(self, part: object) -> int:
        """A number for a part of a state, the same in every process."""
        found = self._prints.get(part)
        if found is None:
            digest = hashlib.blake2b(repr(part).encode(), digest_size=8).digest()
            found = self._prints[part] = int.from_bytes(digest, "little")
        return found

    # ------------------------------------------------------------------------------------------------ their order

    def _jobs(self, state: State) -> tuple[int, ...]:
        keys: list[tuple[object, ...]] = []
        idle: list[int] = []
        for job, ticket in enumerate(state.tickets):
            if ticket is None:
                idle.append(job)
                keys.append((True, *self._alone(state, job)))
            else:
                keys.append((False, ticket.create))
        if len({keys[job] for job in idle}) < len(idle):
            for job in idle:
                keys[job] = (*keys[job], *self._of_job(state, job))
        return _places(self._kinds_of_jobs, keys)

    def _alone(self, state: State, job: int) -> tuple[object, ...]:
        """What is known of a job that has no ticket beside what is on the nodes and in hand."""
        name = self._job_names[job]
        return (
            state.quarantined[job],
            state.sessions[job],
            state.lost[job],
            state.lost_by[job],
            *_roles(state.turn, name),
        )

    def _of_job(self, state: State, job: int) -> tuple[object, ...]:
        """All else, whatever the nodes are called."""
        name, mark = self._job_names[job], self.mark
        on_nodes = sorted(self._of_job_on(node, job, name) for node in state.nodes)
        in_hand = sorted(mark(_of_job_in(one.effect, job, name)) for one in state.pending)
        then = state.snapshot
        kept = mark((then.tickets[job], then.quarantined[job], _roles(then.turn, name))) if then else 0
        return (on_nodes, in_hand, kept)

    def _of_job_on(self, node: NodeState, job: int, name: str) -> int:
        found = self._prints.get((node, job))
        if found is None:
            found = self._prints[node, job] = self.mark(_of_job_on(node, job, name))
        return found

    def _nodes(self, state: State) -> tuple[int, ...]:
        keys: list[tuple[object, ...]] = [(self.mark(node),) for node in state.nodes]
        if len(set(keys)) < len(keys):
            keys = [(*key, *self._of_node(state, place)) for place, key in enumerate(keys)]
        return _places(self._kinds_of_nodes, keys)

    def _of_node(self, state: State, place: int) -> tuple[object, ...]:
        """What is known of a node beside its own state."""
        name = self._node_names[place]
        in_hand = sorted(self.mark(_of_node_in(one.effect, place, name)) for one in state.pending)
        kept = _node_roles(state.snapshot.turn, name) if state.snapshot else ()
        return (_node_roles(state.turn, name), in_hand, kept)

    def _replicas(self, state: State) -> State:
        if len(state.pending) > 1:
            state = state._replace(pending=tuple(sorted(state.pending, key=self.mark)))
        return state

    # ------------------------------------------------------------------------------------------------- renaming

    def changes(self) -> tuple[Names, ...]:
        """Every change of names but none: what it leaves alike cannot be told apart."""
        jobs, nodes = _among(self._kinds_of_jobs), _among(self._kinds_of_nodes)
        return tuple(itertools.starmap(Names, itertools.product(jobs, nodes)))[1:]

    def effect(self, effect: Effect, names: Names) -> Effect:
        """A decision with its names changed."""
        return self._cached(_effect, effect, names)

    def renamed(self, state: State, names: Names) -> State:
        """A state with its names changed."""
        jobs, cached, then = names.jobs, self._cached, state.snapshot
        turn = cached(_turn, state.turn, names)
        pending = tuple([cached(_pending, one, names) for one in state.pending])
        if jobs == self._as_they_are.jobs:
            then = then and then._replace(turn=_turn(then.turn, names))
            return state._replace(turn=turn, nodes=_moved(state.nodes, names.nodes), pending=pending, snapshot=then)
        return State(
            turn,
            state.spec,
            _moved(state.tickets, jobs),
            _moved(state.quarantined, jobs),
            _moved([cached(_node, node, names) for node in state.nodes], names.nodes),
            state.passed,
            _moved(state.sessions, jobs),
            pending,
            state.faults,
            _moved(state.lost, jobs),
            _moved(state.lost_by, jobs),
            then and Snapshot(_turn(then.turn, names), _moved(then.tickets, jobs), _moved(then.quarantined, jobs)),
        )

    def _cached(self, change: object, value: _Value, names: Names) -> _Value:
        key = (value, names)
        found = self._renamed.get(key)
        if found is None:
            found = self._renamed[key] = change(value, names)  # type: ignore[operator]
        return found  # type: ignore[return-value]


_MASK = (1 << 64) - 1

_rest = operator.attrgetter("spec", "tickets", "quarantined", "passed", "sessions", "lost", "lost_by", "snapshot")
"""Of a state what is left without its larger parts: few states differ in that."""


def _among(kinds: Sequence[object]) -> list[tuple[int, ...]]:
    """Every way to change places among those of one kind; first the one that changes none."""
    every = itertools.permutations(range(len(kinds)))
    return [order for order in every if all(kinds[place] == kinds[to] for place, to in enumerate(order))]


@cache
def inverse(names: Names) -> Names:
    """The change back."""
    return Names(*(tuple(map(order.index, range(len(order)))) for order in names))


def _places(kinds: Sequence[object], keys: Sequence[tuple[object, ...]]) -> tuple[int, ...]:
    """Where each goes: those of one kind are sorted among the places that their kind has."""
    order = sorted(range(len(keys)), key=keys.__getitem__)
    to = [0] * len(keys)
    if kinds.count(kinds[0]) == len(kinds):
        for place, member in enumerate(order):
            to[member] = place
        return tuple(to)
    for kind in dict.fromkeys(kinds):
        places = (place for place, other in enumerate(kinds) if other == kind)
        for place, member in zip(places, (one for one in order if kinds[one] == kind), strict=True):
            to[member] = place
    return tuple(to)


def _moved(values: Sequence[_Value], to: Sequence[int]) -> tuple[_Value, ...]:
    after = list(values)
    for place, value in enumerate(values):
        after[to[place]] = value
    return tuple(after)


def _job(name: str, names: Names) -> str:
    return "abcdefgh"[names.jobs["abcdefgh".index(name)]] if name else ""


def _name(name: str, names: Names) -> str:
    return f"n{names.nodes[int(name[1:]) - 1] + 1}" if name else ""


def _turn(turn: TurnState, names: Names) -> TurnState:
    return turn._replace(
        holder=_job(turn.holder, names),
        resident_job=_job(turn.resident_job, names),
        incoming=_job(turn.incoming, names),
        pinned=_job(turn.pinned, names),
        unrestored_job=_job(turn.unrestored_job, names),
        blocked=_name(turn.blocked, names),
        unrestored=_name(turn.unrestored, names),
        nodes=tuple(sorted(_name(one, names) for one in turn.nodes)),
        leaving=tuple(sorted(_name(one, names) for one in turn.leaving)),
    )


def _directive(one: DirectiveState | None, names: Names) -> DirectiveState | None:
    return one and one._replace(on=_job(one.on, names), lost_job=_job(one.lost_job, names))


def _answer(one: Answer | None, names: Names) -> Answer | None:
    return one and one._replace(job=_job(one.job, names))


def _saying(one: Saying | None, names: Names) -> Saying | None:
    if one is None:
        return None
    answer = _answer(one.answer, names)
    assert answer is not None
    return one._replace(answer=answer, records=one.records and _moved(one.records, names.jobs))


def _node(node: NodeState, names: Names) -> NodeState:
    jobs = names.jobs
    return node._replace(
        locked=tuple(sorted((jobs[job], session) for job, session in node.locked)),
        disk=node.disk and (node.disk[0], tuple(sorted((jobs[job], session) for job, session in node.disk[1]))),
        helped=tuple(sorted(jobs[job] for job in node.helped)),
        orphans=tuple((jobs[job], call) for job, call in node.orphans),
        saying=_saying(node.saying, names),
        again=_saying(node.again, names),
        directive=_directive(node.directive, names),
        missed=_directive(node.missed, names),
        answer=_answer(node.answer, names),
        processes=_moved(node.processes, jobs),
        records=_moved(node.records, jobs),
    )


def _pending(one: Pending, names: Names) -> Pending:
    return one._replace(effect=_effect(one.effect, names))


def _effect(one: Effect, names: Names) -> Effect:
    jobs, nodes = names.jobs, names.nodes
    guards = one.guards

    def places(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(nodes[place] for place in values))

    told = []
    for place, directive in one.directives:
        after = _directive(directive, names)
        assert after is not None
        told.append((nodes[place], after))
    return one._replace(
        guards=Guards(
            guards.turn,
            guards.spec,
            tuple(sorted((jobs[job], create) for job, create in guards.tickets)),
            tuple(sorted((jobs[job], mod) for job, mod in guards.health)),
            guards.queue_empty,
            places(guards.away),
            places(guards.free),
            places(guards.kept),
        ),
        turn=one.turn and _turn(one.turn, names),
        tickets=tuple(sorted(change._replace(job=jobs[change.job]) for change in one.tickets)),
        directives=tuple(sorted(told)),
        health=tuple(sorted((jobs[job], out) for job, out in one.health)),
        claim=places(one.claim),
        unclaim=places(one.unclaim),
        forget=places(one.forget),
    )


# ---------------------------------------------------------------------------------- what is known of one of them


def _roles(turn: TurnState, job: str) -> tuple[bool, ...]:
    return (
        turn.holder == job,
        turn.resident_job == job,
        turn.incoming == job,
        turn.pinned == job,
        turn.unrestored_job == job,
    )


def _node_roles(turn: TurnState, node: str) -> tuple[bool, ...]:
    return (node in turn.nodes, node in turn.leaving, node == turn.blocked, node == turn.unrestored)


def _of_job_on(node: NodeState, job: int, name: str) -> tuple[object, ...]:
    told = tuple((one.on == name, one.lost_job == name) for one in (node.directive, node.missed) if one)
    answers = (node.answer, node.saying and node.saying.answer, node.again and node.again.answer)
    named = tuple(one.job == name for one in answers if one)
    written = tuple(one.records[job] for one in (node.saying, node.again) if one and one.records)
    disk = node.disk[1] if node.disk else ()
    held = ([one[1] for one in (*node.locked, *disk) if one[0] == job], job in node.helped)
    return (
        node.processes[job],
        node.records[job],
        tuple(held[0]),
        held[1],
        tuple(call for one, call in node.orphans if one == job),
        told,
        named,
        written,
    )


def _of_job_in(effect: Effect, job: int, name: str) -> tuple[object, ...]:
    changes = tuple(change[1:] for change in effect.tickets if change.job == job)
    health = tuple(out for one, out in effect.health if one == job)
    turn = _roles(effect.turn, name) if effect.turn else ()
    return (changes, health, turn)


def _of_node_in(effect: Effect, place: int, name: str) -> tuple[object, ...]:
    guards = effect.guards
    lists = (guards.away, guards.free, guards.kept, effect.claim, effect.unclaim, effect.forget)
    turn = _node_roles(effect.turn, name) if effect.turn else ()
    return (tuple(place in one for one in lists), turn, tuple(told for at, told in effect.directives if at == place))
