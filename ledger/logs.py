# SPDX-License-Identifier: Apache-2.0
"""The log of a process that runs for long: sentences on the standard error, a line each, at little cost.

A line is said on each step of a hand-off. So what `logging` finds out and no line says is left out; such lines are made
several at a time, `afterwards`, when no step waits for it; and they are written several at a time, since each write
wakes up whoever reads them. A warning takes along what was said before it;
a process that is killed outright may leave unsaid the lines of its last `GATHER` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TextIO

GATHER = 0.05
"""Seconds that a line below the level of a warning may wait for others."""

_FORMATTER = logging.Formatter()


class _Line(NamedTuple):
    """What is still to be said."""

    at: float
    logger: logging.Logger
    message: str
    arguments: tuple[object, ...]
    extra: Mapping[str, object] | None


_waiting: list[_Line] = []


def afterwards(
    logger: logging.Logger, message: str, *arguments: object, extra: Mapping[str, object] | None = None
) -> None:
    """As `logger.info`, with the time of this call, but within `GATHER` seconds. From the thread of the event loop."""
    if not logger.isEnabledFor(logging.INFO):
        return
    now = time.time()
    _waiting.append(_Line(now, logger, message, arguments, extra))
    _gathered(say, len(_waiting), now - _waiting[0].at)


def _gathered(act: Callable[[], None], number: int, age: float) -> None:
    """Another line waits, the ``number``-th since the first came ``age`` seconds ago: have ``act`` called in time."""
    if number == 1:
        try:
            asyncio.get_running_loop().call_later(GATHER, act)
        except RuntimeError:
            act()
    elif not 0 <= age < GATHER:
        act()  # the event loop has had no time for it, or has ended


def say() -> None:
    """Say what waits."""
    lines = _waiting[:]
    _waiting.clear()
    for line in lines:
        logger = line.logger
        record = logger.makeRecord(
            logger.name, logging.INFO, "", 0, line.message, line.arguments, None, None, line.extra
        )
        record.created, record.msecs = line.at, line.at % 1 * 1000
        logger.handle(record)
    for handler in logging.root.handlers if lines else ():
        handler.flush()


class Lines(logging.StreamHandler[TextIO]):
    """Writes ``2026-01-31 12:00:00,123 INFO name: sentence``. A line waits only where an event loop ends its wait."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []
        self._since = 0.0  # when the first of them was said, by the records' clock
        self._second = -1
        self._date = ""

    def format(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if second != self._second:
            self._second, self._date = second, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        line = f"{self._date},{int(record.msecs):03d} {record.levelname} {record.name}: {record.getMessage()}"
        return f"{line}\n{_FORMATTER.formatException(record.exc_info)}" if record.exc_info else line

    def emit(self, record: logging.LogRecord) -> None:
        if _waiting:
            say()  # it was said before
        try:
            self._lines.append(self.format(record) + self.terminator)
            if len(self._lines) == 1:
                self._since = record.created
            if record.levelno >= logging.WARNING:
                self.flush()
            else:
                _gathered(self.flush, len(self._lines), record.created - self._since)
        except Exception:  # noqa: BLE001 - that something cannot be said must not end what it is about
            self.handleError(record)

    def flush(self) -> None:
        """Write what waits."""
        if _waiting:
            say()
        with self.lock or contextlib.nullcontext():
            lines, self._lines = self._lines, []
            if lines:
                self.stream.write("".join(lines))
            super().flush()


def to_stderr(level: int | str) -> None:
    """Log to the standard error from ``level`` on. For a program, at its start; nothing where something logs already.

    What is left out by `logging`'s own switches (its manual, "Optimization") is where a line was said, and by which
    thread and process: it costs a fifth of a line.
    """
    if logging.root.handlers:
        return
    logging.basicConfig(level=level, handlers=[Lines(sys.stderr)])
    logging._srcfile = None  # noqa: SLF001 - by this name in the manual
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
