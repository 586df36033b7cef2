# SPDX-License-Identifier: Apache-2.0
"""Which ways through the decision core the search has taken: what it never takes it says nothing about.

A way is what a coverage tool in branch mode calls one: from an `if`, a `while`, a `for` or a `case` into its body, and
past it; and each line. What is taken is seen by tracing. A `match` that names every member of an enum has no way past
its last `case`: the type checker sees to that (`Ways.exhausted` counts them).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import coordinator.decide

_FOLDER = Path(coordinator.decide.__file__).parent
_IN_FUNCTION = 0x2
"""CO_NEWLOCALS: set for the code of a function, not for that of a class or a module."""

_Answer = TypeVar("_Answer")

FILES: tuple[Path, ...] = tuple(sorted(one for one in _FOLDER.glob("*.py") if one.name != "__init__.py"))

Way = tuple[int, int]
"""From a line to a line; to 0: past the statement. A line alone is a way from itself to itself."""


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways through one file, and those of them that were taken.

    Attributes:
        exhausted: how many `match` statements have no way past their last case.
    """

    name: str
    possible: frozenset[Way]
    taken: frozenset[Way]
    exhausted: int

    @property
    def missed(self) -> list[str]:
        """In words."""
        said = []
        for line, to in sorted(self.possible - self.taken):
            said.append(f"{line}" if to == line else f"{line} → {to or 'past it'}")
        return said


@dataclass(frozen=True, slots=True)
class _Branch:
    """A statement that leads into its body or past it: lines of its test, and of the first statement in its body."""

    first: int
    last: int
    body: int
    body_last: int

    def enters(self, line: int) -> bool:
        return self.body <= line <= self.body_last

    def tests(self, line: int) -> bool:
        return self.first <= line <= self.last


@dataclass(slots=True)
class _Frame:
    """What traces one call of a function. It returns itself; a closure that did would be a cycle."""

    steps: set[Way]
    last: int = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> _Frame:
        if event == "line":
            self.steps.add((self.last, frame.f_lineno))
            self.last = frame.f_lineno
        elif event == "return":
            self.steps.add((self.last, 0))
        return self


@dataclass(slots=True)
class Coverage:
    """Traces calls of the decision core.

    Attributes:
        patience: after so many calls in a row that took no new way no more are traced; 0: all are.
        calls, traced: how many there were, and of how many is known which ways they took.
    """

    patience: int = 0
    calls: int = 0
    traced: int = 0
    _steps: dict[str, set[Way]] = field(default_factory=lambda: {str(path): set() for path in FILES})
    _known: int = 0
    _last_new: int = 0

    def call(self, asked: Callable[[], _Answer]) -> _Answer:
        """Call, and trace."""
        self.calls += 1
        if self.patience and self.traced - self._last_new >= self.patience:
            return asked()
        self.traced += 1
        answer = self._trace(asked)
        if self.patience and (known := sum(map(len, self._steps.values()))) > self._known:
            self._known, self._last_new = known, self.traced
        return answer

    def _trace(self, asked: Callable[[], _Answer]) -> _Answer:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            return asked()
        finally:
            sys.settrace(before)

    def ways(self) -> list[Ways]:
        """For each file of the core what could be taken and what was."""
        return [_ways(path, self._steps[str(path)]) for path in FILES]

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        steps = self._steps.get(frame.f_code.co_filename)
        if steps is None:
            return None
        return _Frame(steps)


def together(parts: list[Ways]) -> list[Ways]:
    """The same files, searched in several parts."""
    taken: dict[str, frozenset[Way]] = {}
    for one in parts:
        taken[one.name] = taken.get(one.name, frozenset()) | one.taken
    first = {one.name: one for one in reversed(parts)}
    return [Ways(name, first[name].possible, taken[name], first[name].exhausted) for name in sorted(first)]


def _ways(path: Path, steps: set[Way]) -> Ways:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lines = frozenset(_lines(path))
    branches, exhausted = list(_branches(tree)), 0
    possible: set[Way] = {(line, line) for line in lines}
    taken: set[Way] = {(line, line) for _, line in steps if line in lines}
    for branch, ends in branches:
        led = [to for one, to in steps if branch.tests(one)]
        possible.add((branch.first, branch.body))
        if any(map(branch.enters, led)):
            taken.add((branch.first, branch.body))
        if ends:
            exhausted += 1
            continue
        possible.add((branch.first, 0))
        if any(not branch.enters(to) and not branch.tests(to) for to in led):
            taken.add((branch.first, 0))
    return Ways(path.name, frozenset(possible), frozenset(taken), exhausted)


def _lines(path: Path) -> Iterator[int]:
    """Every line of every function of the file, without the lines of definitions."""
    for code in _functions(compile(path.read_text(encoding="utf-8"), str(path), "exec")):
        yield from (line for _, _, line in code.co_lines() if line and line != code.co_firstlineno)


def _functions(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & _IN_FUNCTION:
                yield constant
            yield from _functions(constant)


def _branches(tree: ast.Module) -> Iterator[tuple[_Branch, bool]]:
    """Every branch, and whether there is no way past it."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for one in ast.walk(function):
            if isinstance(one, ast.If | ast.While):
                yield _Branch(one.test.lineno, one.test.end_lineno or 0, *_body(one.body)), False
            elif isinstance(one, ast.For):
                yield _Branch(one.lineno, one.iter.end_lineno or 0, *_body(one.body)), False
            elif isinstance(one, ast.Match):
                for number, case in enumerate(one.cases, 1):
                    last = case.guard.end_lineno if case.guard else case.pattern.end_lineno
                    ends = number == len(one.cases)
                    yield _Branch(case.pattern.lineno, last or 0, *_body(case.body)), ends


def _body(statements: list[ast.stmt]) -> tuple[int, int]:
    return statements[0].lineno, statements[0].end_lineno or 0
