# SPDX-License-Identifier: Apache-2.0
"""Whether a node that fails stops a group that does not use it: pure functions over what jobs reported meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from chaos.checkers import Violation
from chaos.dev.lines import Line, Yielded

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Window:
    """A time (ns of CLOCK_MONOTONIC) in which the node's agent did not run."""

    begin: int
    end: int
    node: str

    @property
    def seconds(self) -> float:
        return (self.end - self.begin) / _SECOND

    def turns(self, lines: Sequence[Line]) -> int:
        """Those that a job asked for, got and gave back within it: what was under way before says nothing."""
        return sum(isinstance(line, Yielded) and self.begin < line.asked and line.mono < self.end for line in lines)


def stopped(window: Window, elsewhere: Mapping[str, Sequence[Line]]) -> Iterator[Violation]:
    """Each job that does not use the node has had a turn in the window. ``elsewhere``: what these reported."""
    for job, lines in elsewhere.items():
        if not window.turns(lines):
            what = (
                f"{job} had no turn in {window.seconds:.1f} s without the agent of {window.node}, which it does not use"
            )
            yield Violation("a node stops no other group", what)
