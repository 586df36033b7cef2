# SPDX-License-Identifier: Apache-2.0
"""An edit of one function, by its name and its text: it holds while code around it moves, else it fails loudly."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path


class DoesNotApply(Exception):
    """The code that the edit is about has changed: the bug has to be planted anew, by hand."""


@dataclass(frozen=True, slots=True)
class Edit:
    """In ``function`` of ``path``, put ``new`` in the place of ``old``, which must be there exactly once.

    Attributes:
        path: relative to the tree.
        function: its name; with its class's name before it, as in ``Worker.run``.
    """

    path: str
    function: str
    old: str
    new: str

    def apply(self, tree: Path) -> None:
        """Change the file in ``tree``.

        Raises:
            DoesNotApply: the file, the function or the text is not there, or the result is no Python.
        """
        path = tree / self.path
        if not path.is_file():
            raise DoesNotApply(f"{self.path} is not there")
        path.write_text(self.applied(path.read_text(encoding="utf-8")), encoding="utf-8")

    def applied(self, source: str) -> str:
        """The source with the edit made. Raises DoesNotApply."""
        lines = source.splitlines(keepends=True)
        first, last = _lines(ast.parse(source), self.function, self.path)
        body = "".join(lines[first:last])
        if body.count(self.old) != 1:
            times = f"{body.count(self.old)} times" if self.old in body else "not"
            raise DoesNotApply(f"{self.path}, {self.function}: {self.old!r} is {times} there")
        after = "".join((*lines[:first], body.replace(self.old, self.new), *lines[last:]))
        try:
            ast.parse(after)
        except SyntaxError as error:
            raise DoesNotApply(f"{self.path}, {self.function}: the result is no Python: {error}") from error
        return after


def _lines(module: ast.Module, name: str, path: str) -> tuple[int, int]:
    """Where the function is: its first line, from 0, and the one after its last."""
    scope: list[ast.stmt] = module.body
    found: ast.stmt | None = None
    for part in name.split("."):
        named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = next((one for one in scope if isinstance(one, named) and one.name == part), None)
        if found is None:
            raise DoesNotApply(f"{path} has no {name}")
        scope = found.body
    assert found is not None and found.end_lineno is not None
    return found.lineno - 1, found.end_lineno
