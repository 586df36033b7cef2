# SPDX-License-Identifier: Apache-2.0
"""Which lines of the decision core the search has run: what it never runs it says nothing about."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import coordinator.decide.commands as commands_module
import coordinator.decide.committing as committing_module
import coordinator.decide.core as core_module
import coordinator.decide.drop as drop_module
import coordinator.decide.held as held_module
import coordinator.decide.idle as idle_module
import coordinator.decide.numbers as numbers_module
import coordinator.decide.preparing as preparing_module
import coordinator.decide.queue as queue_module
import coordinator.decide.releasing as releasing_module
import coordinator.decide.restores as restores_module
import coordinator.decide.spec as spec_module
import coordinator.decide.switch as switch_module

MODULES: tuple[ModuleType, ...] = (
    core_module,
    idle_module,
    held_module,
    preparing_module,
    committing_module,
    releasing_module,
    restores_module,
    drop_module,
    switch_module,
    spec_module,
    queue_module,
    numbers_module,
    commands_module,
)


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of one file that can run inside functions, and those of them that did."""

    name: str
    possible: frozenset[int]
    run: frozenset[int]

    @property
    def missed(self) -> list[int]:
        return sorted(self.possible - self.run)


@dataclass(slots=True)
class Coverage:
    """Traces calls of the decision core, line by line."""

    _run: dict[str, set[int]] = field(default_factory=lambda: {_file(module): set() for module in MODULES})

    def call(self, asked: Callable[[], object]) -> object:
        """Call and trace."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            return asked()
        finally:
            sys.settrace(before)

    def lines(self) -> list[Lines]:
        """For each file of the core what could run and what did."""
        return [
            Lines(Path(_file(module)).name, frozenset(_possible(module)), frozenset(self._run[_file(module)]))
            for module in MODULES
        ]

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        run = self._run.get(frame.f_code.co_filename)
        if run is None:
            return None
        run.add(frame.f_lineno)

        def line(frame: FrameType, event: str, arg: object) -> Any:
            run.add(frame.f_lineno)
            return line

        return line


def _file(module: ModuleType) -> str:
    assert module.__file__ is not None
    return module.__file__


def _possible(module: ModuleType) -> Iterator[int]:
    """Every line of every function of the module, without the lines of definitions."""
    source = Path(_file(module)).read_text(encoding="utf-8")
    for code in _functions(compile(source, _file(module), "exec")):
        yield from (line for _, _, line in code.co_lines() if line and line != code.co_firstlineno)


def _functions(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # CO_NEWLOCALS: a function, not a class
                yield constant
            yield from _functions(constant)
