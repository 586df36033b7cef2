# SPDX-License-Identifier: Apache-2.0
"""The world of the model: from a state, everything that may happen next."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from chaos.explore import agents, clients, operators
from chaos.explore.agents import Agents
from chaos.explore.bridge import Answered, Core
from chaos.explore.etcd import holds, records_changed, write
from chaos.explore.faults import LASTING, Budget
from chaos.explore.invariants import check_write
from chaos.explore.life import Lives
from chaos.explore.memo import Shared
from chaos.explore.size import Size
from chaos.explore.state import (
    LOST,
    Effect,
    NodeState,
    Pending,
    Ready,
    Snapshot,
    SpecState,
    State,
    TurnState,
    in_force,
    put,
)


@dataclass(frozen=True, slots=True)
class Next:
    """One thing that may happen.

    Attributes:
        inside: the system does it by itself, sooner or later; else it is a client, an operator or a fault.
    """

    what: str
    state: State
    inside: bool


class _Way(NamedTuple):
    """How a decision comes about."""

    what: str
    inside: bool


class _Takes(dict[tuple[Effect, str], _Way]):
    """What replicas may take in hand at a state: what is decided, and what would be at a request; the fault it takes.

    Nobody changes it any more once it is complete.
    """

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


_READY = 100_000
"""Of so many of these at most there is one for all that are equal."""


class World:
    """All that may happen to one group."""

    def __init__(self, size: Size, core: Core | None = None) -> None:
        self.size = size
        self.jobs, self.nodes = size.job_names, size.node_names
        self.core = core or Core(size)
        self.lives = Lives(self.jobs, size.lasting)
        self.budget = Budget(dict(size.faults))
        self.agents = Agents(self.lives, self.budget, size.fence)
        self._shared = Shared(_READY)

    def start(self) -> State:
        """A group whose spec has just been written: there is no turn, nobody waits, nothing runs."""
        jobs = self.size.jobs
        node = NodeState(processes=(None,) * jobs, records=(None,) * jobs)
        return State(
            turn=TurnState(),
            spec=SpecState(),
            tickets=(None,) * jobs,
            quarantined=(False,) * jobs,
            nodes=(node,) * self.size.nodes,
            passed=(),
            sessions=(1,) * jobs,
            pending=(),
            faults=self.budget.start,
            lost=(0,) * jobs,
            lost_by=(0,) * jobs,
        )

    def next(self, state: State) -> Iterator[Next]:
        """Everything that may happen next. Raises what `invariants` raises when something breaks one.

        What a replica would decide here and now is no part of a state. It is written at once, or goes on in a replica's
        hand beside something else that happens, and is part of the state from when it would not be decided any more.
        """
        room = self.size.replicas - len(state.pending)
        ready = self._ready(state) if room else _Takes()
        new = tuple(Pending(effect, ready=Ready(fault, way.inside)) for (effect, fault), way in ready.items())
        at = state._replace(pending=(*state.pending, *(one for one in new if one.decided not in state.pending)))
        for following in self._around(at):
            yield from self._held(following, room)
        yield from self._writes(state, at, ready, room)
        if self.budget.left(state, "crash"):
            for place in range(len(state.pending)):
                rest = state._replace(pending=state.pending[:place] + state.pending[place + 1 :])
                yield Next("a replica dies before it writes", rest, inside=False)

    def normal(self, state: State) -> State:
        """The state without what is in hand and would be decided here and now as well."""
        ready = self._ready(state) if state.pending else _Takes()
        kept = [one for one in dict.fromkeys(map(_plain, state.pending)) if not _again(ready, one, "")]
        return state._replace(pending=tuple(kept))

    def _ready(self, state: State) -> _Takes:
        kept = self.core.kept(state)
        key = (state.sessions, state.faults)
        found = kept.get(key)
        if found is None:
            found = kept[self._shared.one(key)] = self._shared.one(self._asked(state))
        return found

    def _asked(self, state: State) -> _Takes:
        found = _Takes()
        for decided in self.core.decide(state):
            if decided.effect is not None:
                found[decided.effect, ""] = _Way(f"a replica decides: {decided.why}", inside=True)
        for ask in (clients.requests, clients.repeated, operators.requests):
            for request, fault, inside in ask(state, self.budget):
                by_operator = request.what in ("evict", "pardon", "pause", "resume")
                who = "an operator" if by_operator else self.jobs[request.job]
                for asked in self.core.ask(state, request):
                    if asked.effect is None or (asked.effect, "") in found:
                        continue
                    found.setdefault((asked.effect, fault), _Way(f"{who}: {request.what}: {asked.why}", inside))
        return found

    def _held(self, following: Next, room: int) -> Iterator[Next]:
        """What happens, with each choice of what replicas have gone on holding meanwhile."""
        after = following.state
        if not after.pending:
            yield following
            return
        ready = self._ready(after)
        old: list[Pending] = []
        new: list[tuple[Pending, Ready]] = []
        for one in after.pending:
            plain = _plain(one)
            if one.ready is None:
                old += [] if _again(ready, plain, "") else [plain]
            elif not _again(ready, plain, one.ready.fault):
                new.append((plain, one.ready))
        left = tuple(dict.fromkeys(old))
        yield Next(following.what, after._replace(pending=left), following.inside)
        for many in range(1, min(room, len(new)) + 1):
            for chosen in itertools.combinations(new, many):
                taken = [way.fault for _, way in chosen if way.fault]
                if not self.budget.enough(after, taken):
                    continue
                hand = tuple(dict.fromkeys((*left, *(one for one, _ in chosen))))
                faults = self.budget.spent(after, *taken)
                what = " and ".join(self._why(one) for one, _ in chosen)
                yield Next(
                    f"{following.what}, beside what is in hand: {what}",
                    after._replace(pending=hand, faults=faults),
                    following.inside and all(way.inside for _, way in chosen),
                )

    def _why(self, pending: Pending) -> str:
        return self.core.why.get(pending.effect, "what was decided")

    def _looked(self, before: State, after: State) -> State:
        """An agent that has only to note what is on its device has done so."""
        for place, node in enumerate(after.nodes):
            if node is before.nodes[place]:
                continue
            while look := next((step for step in self.agents.steps(after, place) if step.what == agents.LOOKS), None):
                after = after._replace(nodes=put(after.nodes, place, look.node))
                after = records_changed(after) if look.wrote else after
        return after

    def _around(self, state: State) -> Iterator[Next]:
        """What others than replicas do."""
        for following in self._others(state):
            yield self._prompt(state, following)

    def _prompt(self, before: State, following: Next) -> Next:
        if not self.size.prompt:
            return following
        return Next(following.what, self._looked(before, following.state), following.inside)

    def _others(self, state: State) -> Iterator[Next]:
        for place in range(len(state.nodes)):
            yield from self._agent(state, place)
        yield from self._time(state, self.core.decide(state))
        for what, after in clients.events(state, self.jobs, self.budget):
            yield Next(what, after, inside=False)
        for what, after in operators.events(state, self.size, self.budget):
            yield Next(what, after, inside=False)
        if state.snapshot is not None and self.budget.left(state, "restored"):
            what = "etcd is restored from the backup, and repaired"
            yield Next(what, self._restored(state, state.snapshot), inside=False)

    def _time(self, state: State, answers: tuple[Answered, ...]) -> Iterator[Next]:
        kinds = sorted({wait.kind.value for decided in answers for wait in decided.waits})
        untold = any(node.untold and in_force(state.turn, place) for place, node in enumerate(state.nodes))
        for kind in kinds:
            fault = {"answer": "" if untold else "slow", "drop": "drop"}.get(kind, "")
            if kind not in state.passed and (not fault or self.budget.left(state, fault)):
                faults = self.budget.spent(state, fault) if fault else state.faults
                passed = tuple(sorted({*state.passed, kind}))
                inside = not fault and not self.size.lasting and kind != "hold"
                yield Next(f"the wait for {kind} is over", state._replace(passed=passed, faults=faults), inside)

    def _writes(self, state: State, at: State, ready: _Takes, room: int) -> Iterator[Next]:
        """Replicas write what they have in hand, or what they decide now."""
        for place, pending in enumerate(at.pending):
            rest = at._replace(pending=at.pending[:place] + at.pending[place + 1 :])
            now, inside, what = pending.ready, True, f"written: {self._why(pending)}"
            if now is not None:
                inside, what = now.inside, ready[pending.effect, now.fault].what
                if now.fault:
                    rest = rest._replace(faults=self.budget.spent(rest, now.fault))
            if holds(at, pending):
                check_write(self, at, pending)
                following = Next(what, write(rest, pending.effect), inside)
                yield from self._held(self._prompt(at, following), room - 1 if now else room)
            elif now is None:
                gone = state.pending[:place] + state.pending[place + 1 :]
                yield Next("a write loses its guard", state._replace(pending=gone), inside=True)
            elif inside:
                yield Next(f"{what}, and cannot be written", state, inside=True)

    def _restored(self, state: State, snapshot: Snapshot) -> State:
        """The ledger as it was, then repaired. Agents obey no directive of an older epoch than they have seen."""
        lost = tuple(
            LOST if was or (ticket and ticket.state == "GRANTED") else 0
            for ticket, was in zip(state.tickets, state.lost, strict=True)
        )
        nodes = tuple(
            node._replace(
                directive=None, untold=False, answer=None, current=False, saying=None, again=None, missed=None
            )
            for node in state.nodes
        )
        old = state._replace(
            turn=snapshot.turn,
            tickets=snapshot.tickets,
            quarantined=snapshot.quarantined,
            nodes=nodes,
            passed=(),
            pending=(),
            faults=self.budget.spent(state, "restored"),
            lost=lost,
            lost_by=(0,) * len(lost),  # nobody knows any more
            snapshot=None,
        )
        return write(old, self.core.restored(old))

    def _agent(self, state: State, place: int) -> Iterator[Next]:
        name, node = self.nodes[place], state.nodes[place]
        for step in self.agents.steps(state, place):
            after = step.node
            if self.size.lasting and not node.lasting:
                stays = [fault for fault in step.faults if fault in LASTING]
                after = after._replace(lasting=stays[0] if stays else "")
            faults = self.budget.spent(state, *step.faults) if step.faults else state.faults
            moved = state._replace(nodes=put(state.nodes, place, after), faults=faults)
            if after.registered and not node.registered:  # an absence that has ended is another one when it comes again
                moved = moved._replace(passed=tuple(one for one in moved.passed if one != "drop"))
            if step.wrote:
                moved = records_changed(moved)
            yield Next(f"{name}: {step.what}", moved, inside=not step.faults)


def _plain(pending: Pending) -> Pending:
    """As it is in hand, without what nothing depends on: whether what it does not compare has changed."""
    guards, turn = pending.effect.guards, pending.effect.turn
    untouched = turn is None and not guards.turn
    return Pending(pending.effect, pending.fresh or untouched, pending.wish or not guards.spec)


def _again(ready: _Takes, pending: Pending, fault: str) -> bool:
    """Whether the same would be decided here, at no more than this fault."""
    return pending == Pending(pending.effect) and ((pending.effect, "") in ready or (pending.effect, fault) in ready)
