# SPDX-License-Identifier: Apache-2.0
"""A simulated job as its world sees it: a process to give orders to, and what it has reported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from chaos.dev.lines import Granted, Line, Ready, Rested, Trouble, Yielded, from_json
from chaos.processes import Child, ProcessTrouble


class JobProcess:
    """A `chaos.dev.job` process.

    Attributes:
        child: its process.
        groups: in which it takes its turns, all at once.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str], groups: Sequence[str] = ()
    ) -> None:
        self.name, self.groups = name, tuple(groups)
        self._changed = threading.Condition()
        self._lines: list[Line] = []
        self._orders = 0
        self._born = 0  # lines of its process's earlier lives
        ready = f'"event": "{Ready.__name__.lower()}"'
        self.child = Child(
            name, command, log, environment=environment, ready=ready, on_line=self._take, on_silence=self._wake
        )

    @property
    def lines(self) -> tuple[Line, ...]:
        """All that it has reported."""
        with self._changed:
            return tuple(self._lines)

    @property
    def turns(self) -> list[Yielded]:
        """Its turns that have ended well, oldest first."""
        return [line for line in self.lines if isinstance(line, Yielded)]

    @property
    def troubles(self) -> list[Trouble]:
        return [line for line in self.lines if isinstance(line, Trouble)]

    def run(self, seconds: float | None = None) -> None:
        """Let it take turns for so long; None: until `rest`. Raises ProcessTrouble if it has ended."""
        self._tell("run" if seconds is None else f"run {seconds}")

    def rest(self) -> None:
        """Let it finish its turn and take no other. Raises ProcessTrouble if it has ended."""
        self._tell("rest")

    def move(self) -> None:
        """Let it finish its turn, close its session and open another, at any replica. Raises as `rest`."""
        self._tell("move")

    def wait_rested(self, within: float) -> None:
        """Wait until it has done all that it was told. Raises ProcessTrouble if it does not in so many seconds."""

        def rested(lines: Sequence[Line]) -> bool:
            return sum(isinstance(line, Rested) for line in lines[self._born :]) >= self._orders

        self.wait_for(rested, within, "rest")

    def wait_turns(self, count: int, within: float) -> None:
        """Wait until it has had so many turns. Raises ProcessTrouble if it does not in so many seconds."""
        self.wait_for(
            lambda lines: sum(isinstance(line, Yielded) for line in lines) >= count, within, f"have {count} turns"
        )

    def wait_granted(self, count: int, within: float) -> Granted:
        """Wait for its grant number ``count``, from 1. Raises ProcessTrouble if it has none in so many seconds."""
        grants: list[Granted] = []

        def enough(lines: Sequence[Line]) -> bool:
            grants[:] = [line for line in lines if isinstance(line, Granted)]
            return len(grants) >= count

        self.wait_for(enough, within, f"have {count} grants")
        return grants[count - 1]

    def wait_for(self, true: Callable[[Sequence[Line]], bool], within: float, what: str) -> None:
        """Wait until what it has reported is so. Raises ProcessTrouble, at once if it has ended."""
        with self._changed:
            self._changed.wait_for(lambda: true(self._lines) or self.child.silent, within)
            if true(self._lines):
                return
        how = "ended before it did" if self.child.silent else f"within {within:g} s did not"
        raise ProcessTrouble(self.name, f"{how} {what}", self.child.log)

    def born_again(self) -> None:
        """To be said before its process is started once more: what the old one was told is forgotten."""
        with self._changed:
            self._orders, self._born = 0, len(self._lines)

    def end(self, within: float = 30.0) -> int:
        """Let it finish its turn and end, with its workers. Raises ProcessTrouble if it does not in time."""
        self.child.close_input()
        return self.child.wait(within)

    def _tell(self, order: str) -> None:
        self._orders += 1
        try:
            self.child.write(order)
        except BrokenPipeError:
            raise ProcessTrouble(self.name, f"ended before it was told to {order}", self.child.log) from None

    def _take(self, text: str) -> None:
        line = from_json(text)
        if line is not None:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
