# SPDX-License-Identifier: Apache-2.0
"""A process that this one starts, watches, harms and ends. It dies with this one, however that ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from ledger import child

_TAIL_LINES = 15
_REST_SECONDS = 0.5


class ProcessTrouble(Exception):
    """A process did not do what was waited for; the message has the end of its log.

    Attributes:
        name: the process.
    """

    def __init__(self, name: str, what: str, log: Path) -> None:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
        tail = "\n".join(f"    {line}" for line in lines[-_TAIL_LINES:]) or "    (empty)"
        super().__init__(f"{name} {what}; the end of {log}:\n{tail}")
        self.name = name


class Child:
    """A program with a name and a log. The same command again, after `restart`.

    Standard output and error go to the log; the first line of either that matches ``ready`` makes the process ready.
    ``on_line`` is called with each line of the output, in a thread of the child's own; ``on_silence`` when no more
    can come.

    Args:
        command: the arguments of this same Python interpreter.
        environment: added to this process's own.
        ready: None: it is ready as soon as it runs.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        ready: str | None = None,
        on_line: Callable[[str], None] | None = None,
        on_silence: Callable[[], None] | None = None,
    ) -> None:
        self.name, self.log = name, log
        self.environment = dict(environment or {})
        self._command = tuple(command)
        self._ready = re.compile(ready) if ready is not None else None
        self._on_line = on_line
        self._on_silence = on_silence
        self._changed = threading.Condition()
        self._is_ready = False
        self._silent = True
        self._process: subprocess.Popen[bytes] | None = None
        self._output: threading.Thread | None = None
        self._errors: threading.Thread | None = None

    # ------------------------------------------------------------------------------------------ what it is

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def silent(self) -> bool:
        """No more lines can come: it has ended, or has never been started."""
        with self._changed:
            return self._silent

    @property
    def exit_status(self) -> int | None:
        """None while it runs or before it has run; negative: the signal that ended it."""
        return self._process.poll() if self._process is not None else None

    def wait_ready(self, within: float) -> None:
        """Raises ProcessTrouble if it ended, or is not ready within so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ready or self._silent, within)
            if self._is_ready:
                return
        raise ProcessTrouble(self.name, "ended" if self._silent else f"was not ready within {within:g} s", self.log)

    def wait(self, within: float) -> int:
        """Its exit status, once all that it wrote has been read. Raises ProcessTrouble if it goes on running."""
        assert self._process is not None
        try:
            status = self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise ProcessTrouble(self.name, f"did not end within {within:g} s", self.log) from None
        self._join()
        return status

    # ---------------------------------------------------------------------------------------- what is done to it

    def start(self) -> None:
        """Start it, and return before it is ready. One that runs is left as it is."""
        if self.pid is not None:
            return
        self.kill()  # one that has ended by itself may still be read, and its end would be taken for the new one's
        with self._changed:
            self._is_ready, self._silent = self._ready is None, False
        # The import path is handed on as it is, so that a child finds what this process found.
        path = os.pathsep.join(one for one in sys.path if one)
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **self.environment}
        process = child.spawn(
            [sys.executable, *self._command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            environment=environment,
        )
        assert process.stdout is not None and process.stderr is not None
        self._process = process
        self._output = self._follow(process.stdout, self._read_output)
        self._errors = self._follow(process.stderr, self._read_lines)

    def write(self, line: str) -> None:
        """Write a line to its standard input. Raises BrokenPipeError if it has ended."""
        assert self._process is not None and self._process.stdin is not None
        # Past its buffer: what a broken pipe did not take would be in the way when it is closed.
        os.write(self._process.stdin.fileno(), line.encode() + b"\n")

    def close_input(self) -> None:
        """End its standard input."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()

    def send(self, number: signal.Signals) -> None:
        """Send a signal. Raises ProcessLookupError while it does not run."""
        process = self._process
        if process is None or process.poll() is not None:
            raise ProcessLookupError(f"{self.name} does not run")
        process.send_signal(number)

    def freeze(self) -> None:
        """SIGSTOP; returns when all its threads stand still."""
        self.send(signal.SIGSTOP)
        pid = self.pid
        if pid is not None:
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone. Twice is once."""
        self.end(signal.SIGKILL, child.REAP_SECONDS)

    def end(self, number: signal.Signals, within: float) -> None:
        """End it by a signal, after so many seconds by SIGKILL; returns when it is gone. Twice is once."""
        process = self._process
        if process is None:
            return
        child.end(process, number, within)
        self._join()
        if process.stdin is not None and not process.stdin.closed:
            process.stdin.close()

    # ---------------------------------------------------------------------------------------------- inside

    def _follow(self, stream: IO[bytes], read: Callable[[IO[bytes]], None]) -> threading.Thread:
        thread = threading.Thread(target=read, args=(stream,), name=f"reads {self.name}", daemon=True)
        thread.start()
        return thread

    def _read_output(self, stream: IO[bytes]) -> None:
        self._read_lines(stream, self._on_line)
        with self._changed:
            self._silent = True
            self._changed.notify_all()
        if self._on_silence is not None:
            self._on_silence()

    def _read_lines(self, stream: IO[bytes], on_line: Callable[[str], None] | None = None) -> None:
        with stream, self.log.open("ab", buffering=0) as log:
            for raw in stream:
                log.write(raw)
                line = raw.decode("utf-8", "replace").rstrip("\n")
                if on_line is not None:
                    on_line(line)
                if self._ready is not None and self._ready.search(line):
                    with self._changed:
                        self._is_ready = True
                        self._changed.notify_all()

    def _join(self) -> None:
        """Let what it wrote be read. Its own children may hold its standard error open; nobody waits for them."""
        if self._output is not None and self._errors is not None:
            self._output.join(child.REAP_SECONDS)
            self._errors.join(_REST_SECONDS)


def wait_all_ready(children: Sequence[Child], within: float) -> None:
    """Wait until all are ready; raises ProcessTrouble of the first that is not, within so many seconds."""
    limit = time.monotonic() + within
    for one in children:
        one.wait_ready(max(limit - time.monotonic(), 0.0))
