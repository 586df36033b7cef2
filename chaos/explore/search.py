# SPDX-License-Identifier: Apache-2.0
"""Breadth-first through every state, so that the way to a violation is a shortest one; then: does all come to rest?"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from chaos.explore.agents import SavedWhatItRefused
from chaos.explore.bridge import LeaseLost
from chaos.explore.invariants import Broken, check_rest, check_state
from chaos.explore.state import State
from chaos.explore.world import World


@dataclass(frozen=True, slots=True)
class Violation:
    """What is broken, and the shortest way there."""

    what: str
    trace: tuple[str, ...]
    state: State | None = None


@dataclass(frozen=True, slots=True)
class Result:
    states: int
    transitions: int
    depth: int
    seconds: float
    whole: bool
    at_rest: int
    violation: Violation | None = None


@dataclass(frozen=True, slots=True)
class _Graph:
    """What was found: how each state was first reached, and what happens from it by itself."""

    parent: array[int]
    label: list[str]
    inside: array[int]
    inside_start: array[int]

    def trace(self, place: int) -> tuple[str, ...]:
        steps: list[str] = []
        while self.parent[place] >= 0:
            steps.append(self.label[place])
            place = self.parent[place]
        return tuple(reversed(steps))


def explore(
    world: World, *, max_states: int = 5_000_000, progress: Callable[[int, int, int], None] | None = None
) -> Result:
    """Search the whole of the model, or until something is broken or ``max_states`` are found.

    ``progress`` is called now and then with the numbers of states found and done and the depth.
    """
    began = time.monotonic()
    start = world.start()
    places: dict[State, int] = {start: 0}
    states = [start]
    graph = _Graph(array("l", [-1]), [""], array("l"), array("l"))
    depth, layer_ends, transitions, done = 0, 1, 0, 0

    def result(*, whole: bool, at_rest: int = 0, violation: Violation | None = None) -> Result:
        seconds = time.monotonic() - began
        return Result(len(states), transitions, depth, seconds, whole, at_rest, violation)

    while done < len(states):
        if done == layer_ends:
            depth, layer_ends = depth + 1, len(states)
        state = states[done]
        graph.inside_start.append(len(graph.inside))
        step = ""
        try:
            for following in world.next(state):
                transitions += 1
                step, after = following.what, following.state
                place = places.get(after)
                if place is None:
                    place = places[after] = len(states)
                    states.append(after)
                    graph.parent.append(done)
                    graph.label.append(step)
                    _check(world, after)
                if following.inside:
                    graph.inside.append(place)
        except (Broken, SavedWhatItRefused, LeaseLost) as broken:
            return result(whole=False, violation=_violation(broken, graph, done, step, states))
        done += 1
        if progress and done % 20_000 == 0:
            progress(len(states), done, depth)
        if len(states) > max_states:
            return result(whole=False)
    graph.inside_start.append(len(graph.inside))
    at_rest, violation = _comes_to_rest(world, states, graph)
    return result(whole=True, at_rest=at_rest, violation=violation)


def _check(world: World, state: State) -> None:
    try:
        check_state(world, state)
    except Broken as broken:
        broken.reached = True
        raise


def _violation(broken: Exception, graph: _Graph, done: int, step: str, states: list[State]) -> Violation:
    """A state that is wrong was the last one found; else a write from, or a step in, the one in hand is wrong."""
    said = str(broken) or f"invariant 8: {type(broken).__name__}"
    if isinstance(broken, Broken) and broken.reached:
        return Violation(said, (*graph.trace(done), step), states[-1])
    return Violation(said, graph.trace(done), states[done])


def _comes_to_rest(world: World, states: list[State], graph: _Graph) -> tuple[int, Violation | None]:
    """Without clients and faults, every way must end, and end well: no cycle, and no dead end with somebody waiting.

    Takes away what has nothing after it, again and again; what is left has a cycle.
    """
    after = [graph.inside_start[place + 1] - graph.inside_start[place] for place in range(len(states))]
    before: list[list[int]] = [[] for _ in states]
    for place in range(len(states)):
        for following in graph.inside[graph.inside_start[place] : graph.inside_start[place + 1]]:
            before[following].append(place)
    ready = [place for place, count in enumerate(after) if count == 0]
    at_rest, taken = len(ready), 0
    for place in ready:
        try:
            check_rest(world, states[place])
        except Broken as broken:
            return at_rest, Violation(str(broken), graph.trace(place), states[place])
    while ready:
        place = ready.pop()
        taken += 1
        for earlier in before[place]:
            after[earlier] -= 1
            if after[earlier] == 0:
                ready.append(earlier)
    if taken == len(states):
        return at_rest, None
    return at_rest, _cycle(states, graph, after)


def _cycle(states: list[State], graph: _Graph, after: list[int]) -> Violation:
    first = next(place for place, count in enumerate(after) if count > 0)
    seen: dict[int, int] = {}
    way: list[int] = []
    place = first
    while place not in seen:
        seen[place] = len(way)
        way.append(place)
        following = graph.inside[graph.inside_start[place] : graph.inside_start[place + 1]]
        place = next(one for one in following if after[one] > 0)
    ring = way[seen[place] :]
    start = min(ring)
    steps = [f"{_short(states[one])}" for one in ring]
    trace = (*graph.trace(start), "… and from here round and round:", *steps)
    return Violation("invariant 15: the system goes round in a circle by itself", trace, states[start])


def _short(state: State) -> str:
    turn = state.turn
    steps = ", ".join(f"{node.step or '-'}/{node.answer.outcome if node.answer else '-'}" for node in state.nodes)
    return f"{turn.phase} {turn.resident} {turn.resident_job} -> {turn.incoming or '-'} ({steps})"
