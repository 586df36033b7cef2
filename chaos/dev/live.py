# SPDX-License-Identifier: Apache-2.0
"""The live view of a run: a picture that is redrawn on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from chaos.dev.lines import Granted, Trouble, Yielded
from chaos.dev.state import Picture
from chaos.world import World

_PER_SECOND = 4
_LOOK_SECONDS = 0.2


class View(Protocol):
    """Shows pictures until it is left."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def phase(self, text: str) -> None:
        """Say what comes now."""


class LiveView:
    """Redraws the whole picture."""

    def __init__(self, console: Console, look: Callable[[], Picture], clock: Callable[[], str]) -> None:
        self._look, self._clock = look, clock
        self._phase = ""
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=_PER_SECOND, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def phase(self, text: str) -> None:
        self._phase = text

    def _draw(self) -> Panel:
        seen = self._look()
        head = Text.assemble(
            (self._phase, "bold"),
            "\n\nthe turn: ", (seen.turn, "cyan"),
            f"\nswitches: {seen.switches}    duty cycle of the last 10 s: {seen.duty:.0%}\n",
        )  # fmt: skip
        jobs = Table(box=None, padding=(0, 3, 0, 0))
        for title in ("job", "now", "turns", "median wait"):
            jobs.add_column(title, justify="left" if title in ("job", "now") else "right")
        for job in seen.jobs:
            style = "green" if job.doing.startswith("trains") else "yellow" if job.doing.startswith("waits") else "dim"
            jobs.add_row(job.name, Text(job.doing.ljust(24), style), str(job.turns), f"{job.waited * 1000:.0f} ms")
        processes = Text("\nprocesses  ")
        for name, pid in seen.processes:
            processes.append(f"{name} ", "dim")
            processes.append(f"{pid or 'down'}  ", "" if pid else "bold red")
        return Panel(Group(head, jobs, processes), title=f"timeslice dev · {self._clock()}", title_align="left")


class PlainView:
    """Prints a line for each turn, and when a process has ended."""

    def __init__(self, console: Console, world: World, clock: Callable[[], str]) -> None:
        self._console, self._world, self._clock = console, world, clock
        self._read: dict[str, int] = {}
        self._down: set[str] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="plain view", daemon=True)

    def __enter__(self) -> Self:
        pids = " ".join(f"{name}={self._world.pid(name)}" for name in self._world.names)
        self._say(f"processes: {pids}")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join()

    def phase(self, text: str) -> None:
        self._say(text)

    def _run(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            news = []
            for name, job in self._world.jobs.items():
                lines = job.lines
                news += [(line.mono, name, line) for line in lines[self._read.get(name, 0) :]]
                self._read[name] = len(lines)
            for _, name, line in sorted(news, key=lambda one: one[0]):
                match line:
                    case Granted():
                        first = not any(isinstance(one, Yielded) for one in self._world.jobs[name].lines)
                        how = "first its workers start" if first else "restored" if line.restored else "nothing moved"
                        self._say(f"{name} has the turn {line.token} after {line.waited * 1000:.0f} ms, {how}")
                    case Trouble():
                        self._say(f"{name} met {line.reason}: {line.message}")
                    case _:
                        pass
            for name in self._world.names:
                if self._world.pid(name) is None and name not in self._down:
                    self._down.add(name)
                    self._say(f"{name} has ended")

    def _say(self, text: str) -> None:
        self._console.print(f"{self._clock()}  {text}", soft_wrap=True, highlight=False)
