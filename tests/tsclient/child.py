# SPDX-License-Identifier: Apache-2.0
"""Programs that use the library as others do, run as processes of their own and told by lines what happens."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Child:
    """A Python program in a process. Its lines are read in order; it has to end in time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> str:
        """The next line of its output; empty at its end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def enter(self) -> None:
        """Give it a line to read."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def rest(self, seconds: float = 60.0) -> tuple[int, str, str]:
        """Exit status and what is left of its output and errors."""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err


@contextmanager
def child(program: str, endpoints: Sequence[str], *options: str, **variables: str) -> Iterator[Child]:
    """Run a program with the library's environment set, and what else is said of it.

    It is killed at the end of the block at the latest.
    """
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "protos")]),
        "PYTHONUNBUFFERED": "1",
        "TIMESLICE_ENDPOINTS": ",".join(endpoints),
        "TIMESLICE_JOB_ID": "a",
        "TIMESLICE_TTL": "30",
        **variables,
    }
    process = subprocess.Popen(
        [sys.executable, *options, "-c", program],
        env=env,
        stdin=subprocess.PIPE,  # stays open: a program that reads it waits until `rest` is called
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Child(process)
        finally:
            process.kill()
