# SPDX-License-Identifier: Apache-2.0
"""The agents: when each may go on, and what that changes. What it then does, the production agent says (`life`).

Carrying out a directive, up to the answer, is one step: nobody else can see the device or the journal, and nobody else
can change them. The answer is another step, so that the directive may be a newer one by then, and so is hearing of that
in the middle (`NodeState.missed`). An answer's transaction compares what the production store compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.explore.device import ORPHANED, moved
from chaos.explore.faults import Budget
from chaos.explore.invariants import Broken
from chaos.explore.life import Become, Lives, Situation
from chaos.explore.memo import Memo
from chaos.explore.state import BLAMED, LATER, NodeState, Saying, State, put

_SITUATIONS = 100_000
"""Of so many situations of a node at most the next steps are remembered."""

LOOKS = "looks"
"""The step in which an agent notes what is on its device while no switch is in hand."""

NODE_FAULTS = ("restart", "refuse", "unfit", "unsavable", "resist", "unsaved", "fatal", "unrestored", "stuck")


class Step(NamedTuple):
    """What is done, the node after it, the faults that it takes, and whether the process records have changed."""

    what: str
    node: NodeState
    faults: tuple[str, ...] = ()
    wrote: bool = False


@dataclass(slots=True)
class Agents:
    """What the agents may do, found out once for each node that can be told apart.

    Attributes:
        fence: a new agent waits for the OS locks that helpers of the old one have.
    """

    lives: Lives
    budget: Budget
    fence: bool = True
    _known: dict[object, tuple[Step, ...]] = field(default_factory=lambda: Memo(_SITUATIONS))

    def steps(self, state: State, place: int) -> tuple[Step, ...]:
        """Everything that this node's agent, living or dead, and its helpers may do next."""
        key = (state.nodes[place], state.faults, bool(state.turn.blocked))
        found = self._known.get(key)
        if found is None:
            found = tuple(map(self._fenced, _steps(state, place, self.lives, self.budget)))
            self._known[key] = found
        return found

    def _fenced(self, step: Step) -> Step:
        """Nobody else touches the device before the helpers of a dead agent have ended: they may as well end now."""
        if not self.fence or not step.node.orphans:
            return step
        ended = _orphans_end(step.node, self.lives.jobs)
        return step._replace(what=f"{step.what}, {ended.what}", node=ended.node)


def _steps(state: State, place: int, lives: Lives, budget: Budget) -> Iterator[Step]:
    node = state.nodes[place]
    if node.again is not None:
        yield _deliver(node, node.again)
    if node.orphans:
        yield _orphans_end(node, lives.jobs)
    if not node.up:
        if node.registered and budget.left(state, "away"):
            yield Step("its dead agent's lease ends", _unregistered(node), ("away",))
        yield from _start(state, node, lives, budget)
        return
    if budget.left(state, "restart"):
        yield Step("its agent dies", died(node), ("restart",))
        if node.saying and budget.left(state, "late"):
            late = died(node)._replace(again=node.saying)
            yield Step("its agent dies, its answer is on the way", late, ("restart", "late"))
    if not node.registered:
        yield Step("its agent is registered anew", node._replace(registered=_mod(state)))
    elif budget.left(state, "lapse"):
        yield Step("its registration ends", _unregistered(node), ("lapse",))
    if node.saying is not None:
        yield from _answer(state, node, node.saying, lives, budget)
        return
    if node.missed is not None and node.registered:
        for become in lives.step(_situation(node, superseded=True), budget.of(state, NODE_FAULTS)):
            after = _become(node, become)._replace(missed=None, behind=False)
            yield Step(f"gives up {node.missed.kind}", after, become.faults, become.wrote)
    told = node.directive is not None and not node.untold and not node.answered and node.registered
    at = _situation(node)
    for become in lives.step(at, budget.of(state, NODE_FAULTS)):
        after = _become(node, become)
        if told:
            said = f"answers {become.saying.answer.outcome}" if become.saying else ""
            if node.ahead and said not in ("", "answers STALE"):
                raise Broken(4, "an agent obeys a smaller epoch than one that it has seen")
            assert node.directive is not None
            what = f"carries out {node.directive.kind}, {'dies' if become.died else said or 'gives up'}"
            yield Step(what, after._replace(missed=None, behind=False), become.faults, become.wrote)
        elif after != node:
            yield Step("dies as it looks" if become.died else LOOKS, after, become.faults, become.wrote)
    if budget.left(state, "unsure") and node.answered and node.locked:
        for become in lives.step(at._replace(unsure=True), {}):
            yield Step("cannot confirm its directive, unlocks", _become(node, become), ("unsure",), become.wrote)


def died(node: NodeState) -> NodeState:
    """The agent is dead; its helpers end what they do, and unlock what they have locked."""
    begun, locked = node.disk or (node.begun, node.locked)
    undone = tuple((job, "undo") for job in node.helped)
    return node._replace(
        up=False,
        saying=None,
        prepared=False,
        missed=None,
        behind=False,
        begun=begun,
        locked=locked,
        disk=None,
        helped=(),
        orphans=(*node.orphans, *undone),
    )


def _start(state: State, node: NodeState, lives: Lives, budget: Budget) -> Iterator[Step]:
    for become in lives.start(_situation(node), budget.of(state, ("restart", "stuck"))):
        after = _become(node, become)
        if become.died:
            yield Step("its agent starts and dies", after, become.faults)
            continue
        again = node.again and node.again._replace(living=False)
        started = _kept(after._replace(up=True, registered=_mod(state), again=again))
        yield Step("its agent starts", started, become.faults)
        if budget.left(state, "ahead"):
            yield Step("its agent starts, and has seen a later epoch", started._replace(ahead=True), ("ahead",))


def _answer(state: State, node: NodeState, saying: Saying, lives: Lives, budget: Budget) -> Iterator[Step]:
    after = node._replace(saying=None)
    outcome = saying.answer.outcome
    if not accepted(saying):
        yield Step(f"answers {outcome} in vain", after)
        return
    written, wrote = _written(after, saying)
    settled = lives.settle(_situation(after), outcome)
    noted = written._replace(begun=settled.begun, disk=settled.disk)
    yield Step(f"its {outcome} is written", noted, (), wrote)
    if budget.left(state, "repeat"):
        again = _kept(noted._replace(again=saying._replace(first=False)))
        yield Step(f"its {outcome} is written, and comes again", again, ("repeat",), wrote)
    if noted != written and budget.left(state, "restart"):
        yield Step(f"its {outcome} is written, its agent dies", died(written), ("restart",), wrote)


def _deliver(node: NodeState, saying: Saying) -> Step:
    after = node._replace(again=None)
    if not accepted(saying):
        return Step("an answer arrives late, in vain", after)
    written, wrote = _written(after, saying)
    pending = written.saying and written.saying._replace(first=False)
    return Step("an answer arrives late", written._replace(saying=pending), (), wrote)


def accepted(saying: Saying) -> bool:
    """Whether each compare of the answer's transaction is true."""
    true = {"directive": saying.current, "agent": saying.living, "ack": saying.first}
    return all(true[one] for one in saying.compares)


def _written(node: NodeState, saying: Saying) -> tuple[NodeState, bool]:
    if not saying.current:
        raise Broken(11, "an answer to an older directive is written")
    if not saying.living:
        raise Broken(11, "an answer is written under a registration that is gone")
    wrote = saying.records is not None and saying.records != node.records
    refused = node.refused or saying.answer.outcome == "REFUSED"
    after = node._replace(answer=saying.answer, current=saying.current, refused=refused)
    if saying.records is not None:
        after = after._replace(records=saying.records, recorded=True)
    if after.again is not None:
        after = after._replace(again=after.again._replace(first=False))
    return after, wrote


def _orphans_end(node: NodeState, jobs: tuple[str, ...]) -> Step:
    """The helpers of a dead agent end their driver calls, then unlock what they have locked, then exit."""
    processes = node.processes
    for job, call in node.orphans:
        before, after = ORPHANED[call]
        processes = put(processes, job, moved(processes, job, before, after, jobs))
    return Step("its helpers end", node._replace(processes=processes, orphans=()))


def _become(node: NodeState, become: Become) -> NodeState:
    after = node._replace(
        prepared=become.prepared,
        begun=become.begun,
        locked=become.locked,
        disk=become.disk,
        helped=become.helped,
        processes=become.processes,
        records=become.records,
        recorded=node.recorded or become.wrote,
        saying=become.saying,
        lasting=become.lasting,
    )
    return died(after)._replace(orphans=(*node.orphans, *become.orphans)) if become.died else after


def _kept(node: NodeState) -> NodeState:
    """Without an answer on its way that can never be written any more."""
    if node.again is not None and not accepted(node.again):
        return node._replace(again=None)
    return node


def _unregistered(node: NodeState) -> NodeState:
    saying = node.saying and node.saying._replace(living=False)
    again = node.again and node.again._replace(living=False)
    return _kept(node._replace(registered=0, prepared=False, saying=saying, again=again))


def _mod(state: State) -> int:
    return LATER if state.turn.blocked else BLAMED


def _situation(node: NodeState, *, superseded: bool = False) -> Situation:
    told = node.missed if superseded else None if node.untold else node.directive
    return Situation(
        bool(node.registered),
        node.ahead,
        node.prepared,
        node.refused,
        node.begun,
        node.locked,
        node.disk,
        node.helped,
        told,
        superseded and node.behind,
        superseded,
        node.answer.outcome if node.answered and node.answer and not superseded and told else "",
        node.answer is not None,
        node.processes,
        node.records,
        node.recorded,
        node.claimed == "ours",
        node.lasting,
    )
