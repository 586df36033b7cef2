# SPDX-License-Identifier: Apache-2.0
"""The process that a helper speaks for: whether it is there, runs, and is still the program that it was."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

# proc_pid_stat(5), counted from the state, which is the first field after the command's name.
_STATE, _START_TIME, _START_CODE, _START_STACK = 0, 19, 23, 25
_STOPPED = frozenset("Tt")  # by a signal, or by a debugger
_GONE = frozenset("ZX")


@dataclass(frozen=True, slots=True)
class _Program:
    """
    Attributes:
        image: what an exec changes: the file, and where code and stack begin, which the kernel draws anew each
            time; None while the process does not let itself be looked at.
    """

    start_time: str
    image: tuple[object, ...] | None


class Parent:
    """The process that started this one.

    Attributes:
        pidfd: readable once it has ended; None where the kernel has none.

    Raises:
        ProcessLookupError: it has ended already.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = _pidfd(pid)
        program = self._program()
        if os.getppid() != pid or program is None:
            raise ProcessLookupError(f"process {pid}, which this is the helper of, has ended")
        self._born_as = program

    def is_there(self) -> bool:
        """Whether it lives, as the program that it was: after an exec it is another one, under the same pid."""
        program = self._program()
        if program is None or program.start_time != self._born_as.start_time:
            return False
        return program.image is None or self._born_as.image is None or program.image == self._born_as.image

    def runs(self) -> bool:
        """Whether it is there and not stopped: only then may a heartbeat be sent for it."""
        stat = self._stat()
        return stat is not None and stat[_STATE] not in _STOPPED and self.is_there()

    def kill(self) -> None:
        """End it at once."""
        if self.pidfd is not None:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        elif self.is_there():
            os.kill(self.pid, signal.SIGKILL)

    def _program(self) -> _Program | None:
        stat = self._stat()
        if stat is None or stat[_STATE] in _GONE:
            return None
        try:
            file = os.stat(f"/proc/{self.pid}/exe")  # noqa: PTH116 - it is followed even where the file is gone
        except PermissionError:
            return _Program(stat[_START_TIME], None)
        except OSError:
            return None
        return _Program(stat[_START_TIME], (stat[_START_CODE], stat[_START_STACK], file.st_dev, file.st_ino))

    def _stat(self) -> list[str] | None:
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        return text.rpartition(")")[2].split()


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None  # an older kernel, or a sandbox without it: the closed socket tells
