# SPDX-License-Identifier: Apache-2.0
"""Breadth-first through every state, so that the way to a violation is a shortest one; then: does all come to rest?

The search goes layer by layer. Each of its parts (`part`), which may be processes, looks into the states of a layer
that it has; the fingerprints of what it finds go to the parts that answer for them. Kept of a state are its fingerprint
and that of the one it was first reached from. Two states with one fingerprint would be taken for one (`odds`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.explore.coverage import Ways
from chaos.explore.faults import Budget
from chaos.explore.invariants import Broken, check_rest, check_state
from chaos.explore.part import Found, Handle, Here, Part, There, Told
from chaos.explore.rest import cycle
from chaos.explore.size import Size
from chaos.explore.state import State
from chaos.explore.symmetry import Symmetry
from chaos.explore.world import Next, World

_UNEVEN = 1.3
"""How many times as many states as on average a part may have before it gives some away."""

Progress = Callable[[int, int, int], None]


@dataclass(frozen=True, slots=True)
class Violation:
    """What is broken, and the shortest way there."""

    what: str
    trace: tuple[str, ...]
    state: State | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What a search has found.

    Attributes:
        whole: every state was looked into, and everything comes to rest.
        asked, situations: different questions to the decision core, and different situations of the agent.
        calls, traced: of the decision core, and those of them whose ways are known.
    """

    states: int
    transitions: int
    depth: int
    seconds: float
    whole: bool
    at_rest: int
    asked: int
    situations: int
    ways: list[Ways]
    calls: int
    traced: int
    violation: Violation | None = None


def odds(states: int, size: Size) -> float:
    """That two of so many states have one fingerprint, at most: its parts have 61 bits, and all of it has 64.

    Of the 64 some are not drawn by lot, but say what is left of the faults.
    """
    return states**2 * (2**-62 + 2.0 ** (Budget(dict(size.faults)).bits - 65))


def explore(
    size: Size,
    *,
    max_states: int = 5_000_000,
    workers: int = 1,
    patience: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Search the whole of the model, or until something is broken or ``max_states`` are found.

    Args:
        workers: processes; with one, all is done here.
        patience: after so many calls of the core in a row that took no new way none is traced any more; 0: all are.
        progress: called now and then with the numbers of states found and looked into, and the depth.
    """
    parts: Sequence[Handle] = [Here(Part(size, 0, 1, patience))] if workers == 1 else There.all(size, workers, patience)
    try:
        return _Search(size, parts, progress).run(max_states)
    finally:
        for part in parts:
            part.close()


class _Search:
    def __init__(self, size: Size, parts: Sequence[Handle], progress: Progress | None) -> None:
        self._size, self._parts, self._progress = size, parts, progress
        self._budget = Budget(dict(size.faults))
        self._began = time.monotonic()
        self._states, self._transitions, self._depth, self._at_rest = 1, 0, 0, 0

    def run(self, max_states: int) -> Result:
        self._all("begin")
        done = 0
        while True:
            before = self._states
            found: list[Found] = self._all("look")
            done = before
            self._transitions += sum(one.transitions for one in found)
            self._at_rest += sum(one.at_rest for one in found)
            if broken := [one.broken for one in found if one.broken]:
                mark, what = min(broken)
                return self._result(whole=False, violation=self._violation(mark, what))
            new = self._exchange(found)
            self._states += new
            if self._progress:
                self._progress(self._states, done, self._depth)
            if not new:
                break
            self._depth += 1
            if self._states >= max_states:
                return self._result(whole=False)
        return self._result(whole=True, violation=self._goes_round())

    def _exchange(self, found: Sequence[Found]) -> int:
        """Who asks whom about which fingerprints, and who has what then. Returns how many are new."""
        places = range(len(self._parts))
        asked = [([(found[asks].asked[owner], found[asks].parents[owner]) for asks in places],) for owner in places]
        answers: list[list[bytes]] = self._each("answer", asked)
        lengths: list[int] = self._each("take", [([answers[owner][asks] for owner in places],) for asks in places])
        self._even(lengths)
        return sum(lengths)

    def _even(self, lengths: list[int]) -> None:
        """Parts with many more states than others give some to those with the fewest."""
        average = sum(lengths) / len(lengths)
        if max(lengths) < _UNEVEN * average + 200:
            return
        spare = [max(0, int(length - average)) for length in lengths]
        given: list[list[Any]] = self._each("give", [(many,) for many in spare])
        pool = [one for states in given for one in states]
        wanted: list[tuple[list[Any]]] = []
        for length in lengths:
            many = max(0, int(average - length) + 1)
            wanted.append((pool[:many],))
            pool = pool[many:]
        wanted[-1][0].extend(pool)
        self._each("get", wanted)

    def _result(self, *, whole: bool, violation: Violation | None = None) -> Result:
        told: list[Told] = self._all("told")
        return Result(
            self._states,
            self._transitions,
            self._depth,
            time.monotonic() - self._began,
            whole and violation is None,
            self._at_rest,
            sum(one.asked for one in told),
            sum(one.situations for one in told),
            [ways for one in told for ways in one.ways],
            sum(one.calls for one in told),
            sum(one.traced for one in told),
            violation,
        )

    def _all(self, call: str) -> list[Any]:
        return self._each(call, [()] * len(self._parts))

    def _each(self, call: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        for part, one in zip(self._parts, arguments, strict=True):
            part.send(call, *one)
        return [part.receive() for part in self._parts]

    # --------------------------------------------------------------------------------------------------- what is wrong

    def _violation(self, mark: int, what: str) -> Violation:
        replay = _Replay(self._size)
        steps, state = replay.along(self._chain(mark))
        return Violation(replay.broken(state) or what, tuple(steps), state)

    def _chain(self, mark: int) -> list[int]:
        """The fingerprints on the way to this one, from the start."""
        chain = [mark]
        while mark:
            mark = self._ask("parent", mark)
            chain.append(mark)
        return chain[-2::-1]

    def _ask(self, call: str, mark: int) -> int:
        """Ask the part that answers for this fingerprint."""
        owner = self._parts[self._budget.owner(mark, len(self._parts))]
        owner.send(call, mark)
        answer: int = owner.receive()
        return answer

    def _goes_round(self) -> Violation | None:
        """Without clients and faults, every way must end: no cycle."""
        ring = cycle(self._all("edges"))
        if not ring:
            return None
        replay = _Replay(self._size)
        steps, state = replay.along(self._chain(self._ask("one_of", ring[0])))
        round_trip = replay.inside(state, [*ring[1:], ring[0]])
        trace = (*steps, "… and from here round and round:", *round_trip)
        return Violation("invariant 15: the system goes round in a circle by itself", trace, state)


class _Replay:
    """Goes a way again that is known by its fingerprints, so that jobs and nodes keep their names on it."""

    def __init__(self, size: Size) -> None:
        self._world, self._symmetry = World(size), Symmetry(size)

    def along(self, marks: Sequence[int]) -> tuple[list[str], State]:
        state, steps = self._world.start(), []
        for mark in marks[1:]:
            step = self._step(state, mark)
            steps.append(step.what)
            state = step.state
        return steps, state

    def broken(self, state: State) -> str:
        """What is wrong here, by the names that jobs and nodes have on this way."""
        try:
            check_state(self._world, state)
            inside = [following for following in self._world.next(state) if following.inside]
            if not inside:
                check_rest(self._world, state)
        except Broken as error:
            return str(error)
        return ""

    def inside(self, state: State, marks: Sequence[int]) -> list[str]:
        """As `along`, by what happens by itself, and by what the fingerprints of states alike have in common."""
        steps = []
        for mark in marks:
            step = self._step(state, mark, inside=True)
            steps.append(step.what)
            state = step.state
        return steps

    def _step(self, state: State, mark: int, *, inside: bool = False) -> Next:
        for following in self._world.next(state):
            found = self._symmetry.fingerprint(self._symmetry.canonical(following.state))
            if mark == (self._world.budget.alike(found) if inside else found) and (following.inside or not inside):
                return following
        raise AssertionError("a step that was taken before cannot be taken again")
