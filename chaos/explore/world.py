# SPDX-License-Identifier: Apache-2.0
"""The world of the model: from a state, everything that may happen next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chaos.explore import agents, clients
from chaos.explore.agents import LOCAL
from chaos.explore.bridge import Answered, Core
from chaos.explore.etcd import holds, write
from chaos.explore.faults import LASTING, Budget
from chaos.explore.invariants import check_state, check_write
from chaos.explore.state import LOST, Effect, NodeState, Pending, Snapshot, State, TurnState


@dataclass(frozen=True, slots=True)
class Size:
    """How large the model is, and how often what may go wrong.

    Attributes:
        every_order: search also every order of steps that nobody else can see. Without it the work of a node, from
            reading a directive to answering it, is searched with all that may go wrong in it, but on its own. What can
            be reached once no node is in the middle of its work is the same (a test compares the two).
        lasting: a fault of a node comes to stay. Time that passes then counts as an event from outside: what is blocked
            may be tried again for ever, but never without a pause.
    """

    jobs: int = 2
    nodes: int = 2
    replicas: int = 1
    faults: tuple[tuple[str, int], ...] = ()
    every_order: bool = False
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class Next:
    """One thing that may happen.

    Attributes:
        inside: the system does it by itself, sooner or later; else it is a client, an operator or a fault.
    """

    what: str
    state: State
    inside: bool


class World:
    """All that may happen to one group."""

    def __init__(self, size: Size, core: Core | None = None) -> None:
        self.size = size
        self.jobs = tuple("abcdefgh"[: size.jobs])
        self.nodes = tuple(f"n{number + 1}" for number in range(size.nodes))
        self.core = core or Core(self.jobs, self.nodes)
        self.budget = Budget(dict(size.faults), lasting=size.lasting)

    def start(self) -> State:
        """A group that has just been made: nobody waits, nothing runs, and nobody can say who is on."""
        jobs = self.size.jobs
        return State(
            turn=TurnState(),
            tickets=(None,) * jobs,
            quarantined=(False,) * jobs,
            directive=None,
            nodes=(NodeState(processes=(None,) * jobs),) * self.size.nodes,
            passed=(),
            sessions=(1,) * jobs,
            pending=(),
            faults=self.budget.start,
            lost=(0,) * jobs,
        )

    def next(self, state: State) -> Iterator[Next]:
        """Everything that may happen next. Raises what `invariants` raises when something breaks one."""
        if self.size.every_order:
            yield from self._next(state)
            return
        for following in self._next(state):
            yield from self._settle(following)

    def _settle(self, reached: Next) -> Iterator[Next]:
        """Whatever a node in the middle of its own work may come to, up to where others can see of it."""
        for place, node in enumerate(reached.state.nodes):
            if node.step in LOCAL:
                check_state(self, reached.state)
                for step in self._agent(reached.state, place):
                    both = Next(
                        f"{reached.what}, {step.what.partition(': ')[2]}", step.state, reached.inside and step.inside
                    )
                    yield from self._settle(both)
                return
        yield reached

    def _next(self, state: State) -> Iterator[Next]:
        decided = self.core.decide(state)
        yield from self._replicas(state, decided)
        for place in range(len(state.nodes)):
            yield from self._agent(state, place)
        for kind in sorted(wait.kind.value for wait in decided.waits):
            fault = {"answer": "slow", "drop": "drop"}.get(kind, "")
            if kind not in state.passed and (not fault or self.budget.left(state, fault)):
                faults = self.budget.spent(state, fault) if fault else state.faults
                passed = tuple(sorted({*state.passed, kind}))
                inside = not fault and not self.size.lasting
                yield Next(f"the wait for {kind} is over", state._replace(passed=passed, faults=faults), inside)
        for what, after in clients.events(state, self.jobs, self.budget):
            yield Next(what, after, inside=False)
        if state.snapshot is not None and self.budget.left(state, "restored"):
            yield Next(
                "etcd is restored from the backup, and repaired", self._restored(state, state.snapshot), inside=False
            )
        for job, request, fault in clients.requests(state, self.budget):
            asked = self.core.command(state, request, job)
            faults = self.budget.spent(state, fault) if fault else state.faults
            yield from self._take(state._replace(faults=faults), asked, f"{self.jobs[job]}: {request}:", inside=False)

    def _replicas(self, state: State, decided: Answered) -> Iterator[Next]:
        yield from self._take(state, decided, "a replica decides:", inside=True)
        for place, pending in enumerate(state.pending):
            rest = state._replace(pending=state.pending[:place] + state.pending[place + 1 :])
            if holds(state, pending):
                check_write(self, state, pending)
                why = self.core.why.get(pending.effect, "what was decided")
                yield Next(f"written: {why}", write(rest, pending.effect), inside=True)
            else:
                yield Next("a write loses its guard", rest, inside=True)
            if self.budget.left(state, "crash"):
                faults = self.budget.spent(state, "crash")
                yield Next("the replica dies before it writes", rest._replace(faults=faults), inside=False)

    def _take(self, state: State, asked: Answered, who: str, *, inside: bool) -> Iterator[Next]:
        """A replica that has nothing in hand takes a decision in hand."""
        if asked.effect is None or len(state.pending) >= self.size.replicas:
            return
        pending = Pending(asked.effect)
        if pending not in state.pending:
            both = tuple(sorted((*state.pending, pending), key=hash))
            yield Next(f"{who} {asked.why}", state._replace(pending=both), inside)

    def _restored(self, state: State, snapshot: Snapshot) -> State:
        """The ledger as it was, then repaired. Agents obey no directive of an older epoch than they have seen."""
        lost = tuple(
            LOST if was or (ticket and ticket.state == "GRANTED") else 0
            for ticket, was in zip(state.tickets, state.lost, strict=True)
        )
        nodes = tuple(node._replace(current=False, answer=None, prepared="", apart=None) for node in state.nodes)
        old = state._replace(
            turn=snapshot.turn,
            tickets=snapshot.tickets,
            quarantined=snapshot.quarantined,
            directive=None,
            nodes=nodes,
            passed=(),
            pending=(),
            faults=self.budget.spent(state, "restored"),
            lost=lost,
            snapshot=None,
        )
        return write(old, self.core.restored(old))

    def _agent(self, state: State, place: int) -> Iterator[Next]:
        name, node = self.nodes[place], state.nodes[place]
        for what, stepped, fault in agents.steps(state, node, self.jobs, self.budget):
            stays = fault in LASTING and self.size.lasting
            after = stepped._replace(lasting=fault) if stays else stepped
            nodes = (*state.nodes[:place], after, *state.nodes[place + 1 :])
            faults = self.budget.spent(state, fault) if fault else state.faults
            moved = state._replace(nodes=nodes, faults=faults)
            if after.registered and not node.registered:  # an absence that has ended is another one when it comes again
                moved = moved._replace(passed=tuple(one for one in moved.passed if one != "drop"))
            if node.answer is None and after.answer and after.answer.outcome in ("PREPARED", "COMMITTED"):
                moved = _records_changed(moved)
            yield Next(f"{name}: {what}", moved, inside=not fault)


def _records_changed(state: State) -> State:
    """The process records are written with PREPARED and COMMITTED: a pin sees the change."""
    turn = state.turn._replace(pin_changed=True) if state.turn.pinned else state.turn
    pending = state.pending
    if any(one.effect.turn and one.effect.turn.pinned for one in pending):
        pending = tuple(_pin_changed(one) for one in pending)
    return state._replace(turn=turn, pending=pending)


def _pin_changed(pending: Pending) -> Pending:
    turn = pending.effect.turn
    if turn is None or not turn.pinned:
        return pending
    effect: Effect = pending.effect._replace(turn=turn._replace(pin_changed=True))
    return pending._replace(effect=effect)
