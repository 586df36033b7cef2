# SPDX-License-Identifier: Apache-2.0
"""Child processes for tests on a real device: jobs to act on, and the agent's own helpers to act with.

Every wait has a limit, since a driver call may hang and only a process can be ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(__file__).with_name("target.py")
MIB, GIB = 1 << 20, 1 << 30


class LineProcess:
    """A child that answers lines of JSON."""

    def __init__(self, command: list[str], *, env: Mapping[str, str] | None = None, user: str | None = None) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        pipe = subprocess.PIPE
        # Its complaints go where this process's go: into the log of the run.
        self.child = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, cwd=ROOT, user=user)
        self.pid = self.child.pid
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def send(self, line: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(line.encode() + b"\n")
        self.child.stdin.flush()

    def receive(self, within: float) -> dict[str, Any]:
        """The next line. TimeoutError after ``within`` seconds; EOFError if the child has ended."""
        assert self.child.stdout is not None
        limit, handle = time.monotonic() + within, self.child.stdout.fileno()
        while b"\n" not in self._rest:
            if not select.select([handle], [], [], max(0.0, limit - time.monotonic()))[0]:
                raise TimeoutError(f"no answer of process {self.pid} within {within} s")
            piece = os.read(handle, 1 << 16)
            if not piece:
                raise EOFError(f"process {self.pid} has ended with {self.child.wait(30)}")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def kill(self) -> None:
        """SIGKILL it and reap it."""
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait(60)
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Target(LineProcess):
    """Somebody's CUDA process: `target.py`."""

    def __init__(
        self, kind: str, size: int = 64 * MIB, *, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> None:
        super().__init__([sys.executable, str(TARGET), kind, str(size)], env=env, user=user)
        self.kind = kind

    def ready(self, within: float = 120.0) -> dict[str, Any]:
        return self.receive(within)

    def ask(self, command: str, within: float = 120.0) -> Any:
        """Have it do something and return the value."""
        self.send(command)
        return self.receive(within)["value"]


class HelperError(Exception):
    """A driver call that failed, as the helper tells it."""

    def __init__(self, call: str, pid: int, why: str, final: bool, no_context: bool) -> None:
        super().__init__(f"{call} of {pid}: {why}")
        self.why, self.final, self.no_context = why, final, no_context


class Helper(LineProcess):
    """The agent's helper process, spoken to as the agent does."""

    def __init__(self, *, user: str | None = None) -> None:
        super().__init__([sys.executable, "-m", "nodeagent.helper_main", "cuda"], user=user)
        self._number = 0
        self.progress: list[tuple[float, int, int]] = []

    def begin(self, call: str, pid: int = 0, **more: Any) -> None:
        self._number += 1
        self.send(json.dumps({"id": self._number, "call": call, "pid": pid, **more}))

    def end(self, within: float = 60.0) -> Any:
        """Wait for the answer of the call begun last. Raises HelperError, TimeoutError or EOFError."""
        begin = time.monotonic()
        self.progress = []
        while True:
            answer = self.receive(begin + within - time.monotonic())
            if answer["id"] != self._number:
                continue  # of a call that was given up
            if "progress" in answer:
                self.progress.append((round(time.monotonic() - begin, 3), *answer["progress"]))
            elif "error" in answer:
                raise HelperError(*answer["error"])
            else:
                return answer["ok"]

    def call(self, name: str, pid: int = 0, within: float = 60.0, **more: Any) -> Any:
        self.begin(name, pid, **more)
        return self.end(within)

    def state(self, pid: int, within: float = 60.0) -> str | None:
        _, ((_, found),) = self.call("look", within=within, devices=[], of=[], pids=[pid])
        state: str | None = found
        return state

    def use(self, devices: Sequence[str]) -> list[Any]:
        """UUID, bytes in use, bytes in all and pids of each device."""
        use: list[Any]
        use, _ = self.call("look", devices=list(devices), of=[], pids=[])
        return use
