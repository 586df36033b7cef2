# SPDX-License-Identifier: Apache-2.0
"""A command that is run for its caller: signals reach it, its exit status comes back, and it can be stopped whole."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType

from tsclient.cli.processes import Tree

# Those by which people and schedulers talk to a program. The kernel's own (SIGSEGV, ...) are each process's own, and
# those of job control (SIGTSTP, SIGCONT, ...) reach the command with everything else in the terminal's job.
FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)

# The command is told to go on once all is ready for it: it stops itself where nothing of it has run yet. A shell is
# everywhere, and says by 126 and 127 that a program cannot be run.
_GATE = 'kill -STOP $$ && exec "$@"'

Handler = Callable[[int, "FrameType | None"], object] | int | None


class Supervised:
    """A command that has been started, and waits to be let go.

    Attributes:
        tree: its processes.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        # What its caller has open, it has open too.
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _GATE, "timeslice", *command], env=environment, close_fds=False
        )
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.tree = Tree(self._process.pid)

    def go(self) -> None:
        """Let it run."""
        self._process.send_signal(signal.SIGCONT)

    def run(self, tick: float, each: Callable[[], None]) -> int:
        """Wait for its end, forwarding signals, and call `each` every `tick` seconds.

        Returns:
            Its exit status, or 128 and the number of the signal that has ended it.
        """
        handle = os.pidfd_open(self._process.pid)
        try:
            with _Told() as told:
                while self._process.poll() is None:
                    select.select([handle, told.fileno()], [], [], tick)
                    for number in told.take():
                        if not _went_to_all(number):
                            self._process.send_signal(number)
                    each()
        finally:
            os.close(handle)
        status = self._process.returncode
        return status if status >= 0 else 128 - status

    def kill(self) -> None:
        """SIGKILL it with all that descends from it, and wait for its end."""
        self.tree.send(signal.SIGKILL)
        self._process.kill()
        self._process.wait()


class _Told:
    """The signals that this process is sent while it is in the block. Those that it was to ignore stay ignored."""

    def __enter__(self) -> _Told:  # noqa: PYI034 - 3.10 has no Self
        self._reads, self._writes = socket.socketpair()
        self._reads.setblocking(False)
        self._writes.setblocking(False)
        self._before: dict[signal.Signals, Handler] = {
            number: signal.getsignal(number) for number in FORWARDED if signal.getsignal(number) is not signal.SIG_IGN
        }
        self._wakeup = signal.set_wakeup_fd(self._writes.fileno(), warn_on_full_buffer=False)
        for number in self._before:
            signal.signal(number, _nothing)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        self._reads.close()
        self._writes.close()

    def fileno(self) -> int:
        return self._reads.fileno()

    def take(self) -> list[signal.Signals]:
        """Those that have come since the last time, in their order."""
        try:
            return [signal.Signals(number) for number in self._reads.recv(4096) if number in self._before]
        except BlockingIOError:
            return []


def _nothing(number: int, frame: FrameType | None) -> None:
    """Its number is in the socket already, from where it is read."""


@contextlib.contextmanager
def ends_by_signal() -> Iterator[None]:
    """In the block SIGTERM and SIGHUP end the program as Ctrl-C does: what has begun is taken back on the way out."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {
        number: signal.signal(number, end)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _went_to_all(number: signal.Signals) -> bool:
    """Whether the terminal has sent it: then the command, being in the foreground too, has had it already."""
    if number not in (signal.SIGINT, signal.SIGQUIT):
        return False
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False  # there is none
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
