# SPDX-License-Identifier: Apache-2.0
"""One part of a search: the states that it looks into, and the fingerprints that it answers for.

Every fingerprint has one part that knows whether it has been seen. A part keeps the states that it has found itself
until it has looked into them: only fingerprints go to others, and of a state that is done nothing else is kept.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Protocol

from chaos.explore.bridge import Core
from chaos.explore.coverage import Coverage, Ways
from chaos.explore.invariants import Broken, check_rest, check_state
from chaos.explore.seen import Seen
from chaos.explore.size import Size
from chaos.explore.state import State
from chaos.explore.symmetry import Symmetry
from chaos.explore.world import World


@dataclass(frozen=True, slots=True)
class Found:
    """What looking into a layer of states has brought: for each part the fingerprints to be asked about.

    Attributes:
        broken: the state that is wrong, or from which a wrong step leads, and what is.
        transitions: how many steps there were.
        at_rest: states from which nothing happens by itself.
    """

    asked: list[bytes]
    parents: list[bytes]
    transitions: int
    at_rest: int
    broken: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class Edges:
    """What happens by itself: of each state its fingerprint, how many steps lead on, and where to."""

    sources: bytes
    counts: bytes
    targets: bytes


@dataclass(frozen=True, slots=True)
class Told:
    """What a part can tell of its work: questions to the core, situations of agents, ways of the core taken.

    Attributes:
        calls, traced: of the core, and those of them whose ways are known.
    """

    asked: int
    situations: int
    ways: list[Ways]
    calls: int
    traced: int


class Part:
    """See the module."""

    def __init__(self, size: Size, number: int, count: int, patience: int = 0) -> None:
        self._coverage = Coverage(patience)
        self._symmetry = Symmetry(size)
        self._world = World(size, Core(size, self._coverage, self._symmetry))
        self._number, self._count = number, count
        self._seen = Seen(self._world.budget)
        self._layer: list[tuple[int, State]] = []
        self._candidates: list[list[tuple[int, State]]] = []
        self._sources, self._counts, self._targets = array("Q"), array("B"), array("Q")

    def begin(self) -> None:
        """The start, for the part that answers for it."""
        start = self._symmetry.canonical(self._world.start())
        mark = self._symmetry.fingerprint(start)
        if self._world.budget.owner(mark, self._count) == self._number:
            self._seen.add(mark, 0)
            self._layer = [(mark, start)]

    def look(self) -> Found:
        """Look into every state of the layer."""
        canonical, fingerprint = self._symmetry.canonical, self._symmetry.fingerprint
        count, seen, budget = self._count, self._seen, self._world.budget
        found: list[dict[int, tuple[int, State]]] = [{} for _ in range(count)]
        transitions = at_rest = 0
        broken: tuple[int, str] | None = None
        for mark, state in self._layer:
            inside: set[int] = set()
            try:
                check_state(self._world, state)
                for following in self._world.next(state):
                    transitions += 1
                    after = canonical(following.state)
                    other = fingerprint(after)
                    if following.inside:
                        inside.add(budget.alike(other))
                    owner = budget.owner(other, count)
                    if owner != self._number or not seen.covers(other):
                        found[owner].setdefault(other, (mark, after))
                if not inside:
                    at_rest += 1
                    check_rest(self._world, state)
            except Broken as error:
                broken = broken or (mark, str(error))
            self._sources.append(budget.alike(mark))
            self._counts.append(len(inside))
            self._targets.extend(inside)
        self._candidates = [[(mark, state) for mark, (_, state) in one.items()] for one in found]
        asked = [array("Q", one).tobytes() for one in found]
        parents = [array("Q", [parent for parent, _ in one.values()]).tobytes() for one in found]
        return Found(asked, parents, transitions, at_rest, broken)

    def answer(self, asked: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
        """For each part that asks, which of its states are to be looked into: nobody had them, or outdoes them now."""
        all_marks = [array("Q", marks) for marks, _ in asked]
        new = [
            [self._seen.add(mark, parent) for mark, parent in zip(marks, array("Q", parents), strict=True)]
            for marks, (_, parents) in zip(all_marks, asked, strict=True)
        ]
        return [
            bytes(first and not self._seen.outdone(mark) for mark, first in zip(marks, firsts, strict=True))
            for marks, firsts in zip(all_marks, new, strict=True)
        ]

    def take(self, new: Sequence[bytes]) -> int:
        """What was new is the next layer. Returns its length."""
        self._layer = [
            one
            for candidates, marks in zip(self._candidates, new, strict=True)
            for one, first in zip(candidates, marks, strict=True)
            if first
        ]
        self._candidates = []
        return len(self._layer)

    def give(self, many: int) -> list[tuple[int, State]]:
        """Hand over so many states of the layer to a part that has fewer."""
        given, self._layer = self._layer[:many], self._layer[many:]
        return given

    def get(self, states: list[tuple[int, State]]) -> None:
        """Have these looked into as well."""
        self._layer += states

    def parent(self, mark: int) -> int:
        """How this state was first reached; 0 for the start."""
        return self._seen.before(mark)

    def one_of(self, alike: int) -> int:
        """The fingerprint of a state that was found, of those that differ in what is left of the faults alone."""
        return self._seen.one_of(alike)

    def edges(self) -> Edges:
        return Edges(self._sources.tobytes(), self._counts.tobytes(), self._targets.tobytes())

    def told(self) -> Told:
        coverage = self._coverage
        return Told(self._world.core.asked, self._world.lives.runs, coverage.ways(), coverage.calls, coverage.traced)


class Handle(Protocol):
    """A part, here or in another process: calls are sent to all, then answered by all."""

    def send(self, call: str, *arguments: Any) -> None:
        """Ask for this."""

    def receive(self) -> Any:
        """The answer to what was asked."""

    def close(self) -> None:
        """It is not needed any more."""


@dataclass(slots=True)
class Here:
    """A part in this process."""

    part: Part
    _call: Callable[[], Any] = field(default=lambda: None)

    def send(self, call: str, *arguments: Any) -> None:
        self._call = lambda: getattr(self.part, call)(*arguments)

    def receive(self) -> Any:
        return self._call()

    def close(self) -> None:
        """Nothing is to be done."""


class There:
    """A part in a process of its own, which ends when the pipe to it closes."""

    def __init__(self, size: Size, number: int, count: int, patience: int = 0, before: Sequence[There] = ()) -> None:
        context = get_context("fork")
        self.pipe, theirs = context.Pipe()
        # A forked process has all that is open here, and would keep the pipes of the others open.
        ours = [self.pipe, *(one.pipe for one in before)]
        self._process = context.Process(target=_serve, args=(theirs, ours, size, number, count, patience), daemon=True)
        self._process.start()
        theirs.close()

    @classmethod
    def all(cls, size: Size, count: int, patience: int = 0) -> list[There]:
        """Every part of a search, each in a process of its own."""
        parts: list[There] = []
        for number in range(count):
            parts.append(cls(size, number, count, patience, parts))
        return parts

    def send(self, call: str, *arguments: Any) -> None:
        self.pipe.send((call, arguments))

    def receive(self) -> Any:
        try:
            return self.pipe.recv()
        except EOFError as error:
            raise ChildProcessError("a process of the search has ended; what it said is above") from error

    def close(self) -> None:
        self.pipe.close()
        self._process.join()


def _serve(pipe: Connection, others: Sequence[Connection], size: Size, number: int, count: int, patience: int) -> None:
    for one in others:
        one.close()
    gc.disable()  # nothing here is a cycle, and the collector would walk all of the states again and again
    part = Part(size, number, count, patience)
    while True:
        try:
            call, arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(getattr(part, call)(*arguments))
