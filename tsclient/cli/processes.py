# SPDX-License-Identifier: Apache-2.0
"""A command's processes: those that descend from it, each told apart from a later one with its pid."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")

# Fields of /proc/<pid>/stat after the command name, which may itself hold spaces and brackets. proc_pid_stat(5).
_STATE, _PARENT, _START_TIME = 0, 1, 22 - 3
_DEAD = frozenset("ZXx")


class Process(NamedTuple):
    """
    Attributes:
        start_time: clock ticks after boot.
    """

    pid: int
    start_time: int


class Tree:
    """The processes of a command. One whose parents have ended stays in it, once it was seen."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._seen: set[Process] = set()

    def living(self) -> frozenset[Process]:
        """Those that run now. Reads /proc once."""
        table = _table()
        running = {Process(pid, start) for pid, (_, start) in table.items()}
        found = {self._root} | {process.pid for process in self._seen & running}
        children: dict[int, list[int]] = {}
        for pid, (parent, _) in table.items():
            children.setdefault(parent, []).append(pid)
        new = list(found)
        while new:
            more = [child for child in children.get(new.pop(), ()) if child not in found]
            found.update(more)
            new.extend(more)
        self._seen = {process for process in running if process.pid in found}
        return frozenset(self._seen)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to each of them."""
        for process in self.living():
            _send(process, number)


def boot_id() -> str:
    """Of the machine's present boot."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _table() -> dict[int, tuple[int, int]]:
    """Parent and start time of each living process, by its pid."""
    found = {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and (known := _look(int(entry.name))) is not None:
            found[int(entry.name)] = known
    return found


def _look(pid: int) -> tuple[int, int] | None:
    """Its parent and start time; None if it has ended."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STATE] in _DEAD else (int(fields[_PARENT]), int(fields[_START_TIME]))


def _send(process: Process, number: signal.Signals) -> None:
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        # Between its last look and the handle the pid may have gone to somebody else; from here on it cannot.
        known = _look(process.pid)
        if known is not None and known[1] == process.start_time:
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return  # it has ended by itself, which is as good
    finally:
        os.close(handle)
