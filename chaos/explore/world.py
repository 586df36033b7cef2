# SPDX-License-Identifier: Apache-2.0
"""The world of the model: from a state, everything that may happen next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chaos.explore import agents, clients, operators
from chaos.explore.agents import Agents
from chaos.explore.bridge import Answered, Core, Request
from chaos.explore.etcd import holds, records_changed, write
from chaos.explore.faults import LASTING, Budget
from chaos.explore.invariants import check_write
from chaos.explore.life import Lives
from chaos.explore.size import Size
from chaos.explore.state import LOST, NodeState, Pending, Snapshot, SpecState, State, TurnState, in_force, put


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
        self.jobs, self.nodes = size.job_names, size.node_names
        self.core = core or Core(size)
        self.lives = Lives(self.jobs, size.lasting)
        self.budget = Budget(dict(size.faults))
        self.agents = Agents(self.lives, self.budget, size.fence)

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
        """Everything that may happen next. Raises what `invariants` raises when something breaks one."""
        if not self.size.prompt:
            yield from self._next(state)
            return
        for following in self._next(state):
            yield Next(following.what, self._looked(state, following.state), following.inside)

    def _looked(self, before: State, after: State) -> State:
        """An agent that has only to note what is on its device has done so."""
        for place, node in enumerate(after.nodes):
            if node is before.nodes[place]:
                continue
            while look := next((step for step in self.agents.steps(after, place) if step.what == agents.LOOKS), None):
                after = after._replace(nodes=put(after.nodes, place, look.node))
                after = records_changed(after) if look.wrote else after
        return after

    def _next(self, state: State) -> Iterator[Next]:
        answers = self.core.decide(state)
        for decided in answers:
            yield from self._take(state, decided, "a replica decides:", inside=True)
        yield from self._replicas(state)
        for place in range(len(state.nodes)):
            yield from self._agent(state, place)
        yield from self._time(state, answers)
        for what, after in clients.events(state, self.jobs, self.budget):
            yield Next(what, after, inside=False)
        for what, after in operators.events(state, self.size, self.budget):
            yield Next(what, after, inside=False)
        if state.snapshot is not None and self.budget.left(state, "restored"):
            what = "etcd is restored from the backup, and repaired"
            yield Next(what, self._restored(state, state.snapshot), inside=False)
        for ask in (clients.requests, clients.repeated, operators.requests):
            for request, fault, inside in ask(state, self.budget):
                faults = self.budget.spent(state, fault) if fault else state.faults
                yield from self._request(state._replace(faults=faults), request, inside=inside)

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

    def _replicas(self, state: State) -> Iterator[Next]:
        for place, pending in enumerate(state.pending):
            rest = state._replace(pending=state.pending[:place] + state.pending[place + 1 :])
            if holds(state, pending):
                check_write(self, state, pending)
                why = self.core.why.get(pending.effect, "what was decided")
                after = write(rest, pending.effect)
                yield Next(f"written: {why}", after, inside=True)
            else:
                yield Next("a write loses its guard", rest, inside=True)
            if self.budget.left(state, "crash"):
                faults = self.budget.spent(state, "crash")
                yield Next("the replica dies before it writes", rest._replace(faults=faults), inside=False)

    def _request(self, state: State, request: Request, *, inside: bool) -> Iterator[Next]:
        who = "an operator" if request.what in ("evict", "pardon", "pause", "resume") else self.jobs[request.job]
        for asked in self.core.ask(state, request):
            yield from self._take(state, asked, f"{who}: {request.what}:", inside=inside)

    def _take(self, state: State, asked: Answered, who: str, *, inside: bool) -> Iterator[Next]:
        """A replica that has nothing in hand takes a decision in hand."""
        if asked.effect is None or len(state.pending) >= self.size.replicas:
            return
        pending = Pending(asked.effect)
        if pending not in state.pending:
            yield Next(f"{who} {asked.why}", state._replace(pending=(*state.pending, pending)), inside)

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
