# SPDX-License-Identifier: Apache-2.0
"""The agents, as the protocol has them: a model of `nodeagent`, not that code.

Reading the directive and doing what it says are two steps, so that the directive may be another one in between; so are
doing and answering. A driver call of a dead agent's helper ends before the next agent may start, by the OS lock
(protocol rule 2), so it is part of the step. An answer is guarded by the directive's mod revision, the agent's own
registration, and there being none yet (rule 7).
"""

from __future__ import annotations

from collections.abc import Iterator

from chaos.explore.faults import Budget
from chaos.explore.state import BLAMED, LATER, Answer, DirectiveState, NodeState, Process, State

Step = tuple[str, NodeState, str]
"""What is done, the node after it, and the fault that it takes ("" for none)."""

LOCAL = frozenset({"prepare", "begin", "save", "restore", "release"})
"""Steps that nobody else sees before the node has answered, and that nobody else can change."""

FIRST = {"PREPARE": "prepare", "COMMIT": "begin", "RELEASE": "release"}
PREPARED, COMMITTED, RELEASED = Answer("PREPARED"), Answer("COMMITTED"), Answer("RELEASED")


class SavedWhatItRefused(Exception):
    """A node that refused this epoch's PREPARE has saved something all the same (invariant 8)."""


def steps(state: State, node: NodeState, jobs: tuple[str, ...], budget: Budget) -> Iterator[Step]:
    """Everything that this node's agent may do next."""
    if not node.up:
        yield from _down(state, node, budget)
        return
    if budget.left(state, "restart"):
        yield "its agent dies", _died(node), "restart"
    match node.step:
        case "":
            told = node.apart or state.directive
            if told is not None and node.answer is None:
                yield f"reads {told.kind}", node._replace(step=FIRST[told.kind], told=told, current=True), ""
        case "prepare":
            yield from _prepare(state, node, jobs, budget)
        case "begin":
            yield from _begin(state, node, jobs, budget)
        case "save":
            yield from _save(state, node, jobs, budget)
        case "restore":
            yield from _restore(state, node, jobs, budget)
        case "release":
            unlocked = tuple(_unlock(process) for process in node.processes)
            yield "unlocks", _say(node._replace(processes=unlocked, prepared="", begun=False), RELEASED), ""
        case _:
            yield _answer(node)


def _down(state: State, node: NodeState, budget: Budget) -> Iterator[Step]:
    later = LATER if state.turn.blocked else BLAMED
    processes = node.processes if node.begun else tuple(_unlock(process) for process in node.processes)
    yield "its agent starts", node._replace(up=True, registered=later, processes=processes), ""
    if node.registered and budget.left(state, "away"):
        yield "its dead agent's lease ends", node._replace(registered=0), "away"


def _died(node: NodeState) -> NodeState:
    return node._replace(up=False, step="", told=None, current=False, saying=None, prepared="")


def _prepare(state: State, node: NodeState, jobs: tuple[str, ...], budget: Budget) -> Iterator[Step]:
    told = _told(node)
    going = [job for job in _outgoing(node, told, jobs) if node.processes[job]]
    # Another directive may have come since it read: what it prepares then counts for nothing.
    yes, refused = ("yes", "refused") if node.current else ("", "")
    node = node._replace(begun=False)
    locked = _locked(node, going)
    resists, unfit, refuses = (budget.chance(state, node, name) for name in ("resist", "unfit", "refuse"))
    stuck = (resists.sure and going) or (unfit.sure and told.on) or refuses.sure
    if not stuck:
        yield "locks, is prepared", _say(locked._replace(prepared=yes), PREPARED), ""
    if going and resists.may:
        if told.kill:
            killed = _killed(locked, going)._replace(prepared=yes)
            yield "kills what resists, is prepared", _say(killed, PREPARED), resists.costs
        else:
            answer = Answer("REFUSED", "OUTGOING", job=jobs[going[0]])
            yield f"cannot lock {answer.job}", _say(node._replace(prepared=refused), answer), resists.costs
    if told.on and unfit.may:
        answer = Answer("REFUSED", "INCOMING", job=told.on)
        yield f"finds {told.on} unfit", _say(node._replace(prepared=refused), answer), unfit.costs
    if refuses.may:
        yield "refuses", _say(node._replace(prepared=refused), Answer("REFUSED", "NODE")), refuses.costs


def _begin(state: State, node: NodeState, jobs: tuple[str, ...], budget: Budget) -> Iterator[Step]:
    """It looks and locks again, and only then notes that the commit has begun."""
    told = _told(node)
    going = _outgoing(node, told, jobs)
    refuses = budget.chance(state, node, "refuse")
    if node.prepared or not refuses.sure:
        yield "notes COMMIT-BEGUN", _locked(node, going)._replace(begun=True, step="save"), ""
    if not node.prepared and refuses.may:
        answer = Answer("REFUSED", "NODE")
        yield "refuses to commit", _say(node._replace(prepared="refused"), answer), refuses.costs


def _save(state: State, node: NodeState, jobs: tuple[str, ...], budget: Budget) -> Iterator[Step]:
    told = _told(node)
    going = [job for job in _outgoing(node, told, jobs) if node.processes[job]]
    if going and node.prepared == "refused":
        raise SavedWhatItRefused
    parked = node
    for job in going:
        parked = _put(parked, job, _park(parked.processes[job], lost=jobs[job] == told.lost_job))
    unsaved, fatal = budget.chance(state, node, "unsaved"), budget.chance(state, node, "fatal")
    if not going or not (unsaved.sure or fatal.sure):
        yield "saves", parked._replace(step="restore"), ""
    if going and unsaved.may:
        if told.kill:
            yield "kills what it cannot save", _killed(parked, going)._replace(step="restore"), unsaved.costs
        else:
            answer = Answer("FAILED", failure="NOT_SAVED", job=jobs[going[0]])
            yield f"cannot save {answer.job}", _say(node, answer), unsaved.costs
    if going and fatal.may:
        answer = Answer("FAILED", failure="PROCESS_LOST", job=jobs[going[0]])
        yield f"loses {answer.job}", _say(_killed(node, going[:1]), answer), fatal.costs


def _restore(state: State, node: NodeState, jobs: tuple[str, ...], budget: Budget) -> Iterator[Step]:
    told = _told(node)
    if not told.on:
        yield "is free", _say(node, COMMITTED), ""
        return
    job = jobs.index(told.on)
    process = node.processes[job]
    wanted = process is not None and (not process.lost or process.session == told.on_session)
    fails = budget.chance(state, node, "unrestored")
    parked = wanted and process is not None and process.state == "PARKED"
    if not (parked and fails.sure):
        after = _put(node, job, Process("RUNNING", process.session)) if process and wanted else node
        yield f"brings {told.on} on", _say(after, COMMITTED), ""
    if parked and fails.may:
        answer = Answer("FAILED", failure="NOT_RESTORED", job=told.on)
        yield f"cannot restore {told.on}", _say(_killed(node, [job]), answer), fails.costs


def _answer(node: NodeState) -> Step:
    saying = node.saying
    assert saying is not None
    after = node._replace(step="", told=None, current=False, saying=None)
    if saying.outcome == "COMMITTED":
        after = after._replace(begun=False)
    if node.current and node.registered and node.answer is None:
        return f"answers {saying.outcome}", after._replace(answer=saying), ""
    return f"answers {saying.outcome} in vain", after, ""


def _outgoing(node: NodeState, told: DirectiveState, jobs: tuple[str, ...]) -> list[int]:
    """What is on and shall not be: other jobs, and what the lost session of the incoming job has left (rule 5)."""
    found = []
    for job, process in enumerate(node.processes):
        if process is None or process.state == "PARKED":
            continue
        left_behind = jobs[job] == told.lost_job and told.lost_session and told.on_session != told.lost_session
        if jobs[job] != told.on or (left_behind and process.session == told.lost_session):
            found.append(job)
    return found


def _told(node: NodeState) -> DirectiveState:
    assert node.told is not None
    return node.told


def _say(node: NodeState, answer: Answer) -> NodeState:
    return node._replace(step="answer", saying=answer)


def _put(node: NodeState, job: int, process: Process | None) -> NodeState:
    return node._replace(processes=(*node.processes[:job], process, *node.processes[job + 1 :]))


def _locked(node: NodeState, which: list[int]) -> NodeState:
    for job in which:
        process = node.processes[job]
        if process is not None:
            node = _put(node, job, process._replace(state="LOCKED"))
    return node


def _killed(node: NodeState, which: list[int]) -> NodeState:
    for job in which:
        node = _put(node, job, None)
    return node


def _unlock(process: Process | None) -> Process | None:
    return process._replace(state="RUNNING") if process and process.state == "LOCKED" else process


def _park(process: Process | None, *, lost: bool) -> Process:
    assert process is not None
    return Process("PARKED", process.session, process.lost or lost)
