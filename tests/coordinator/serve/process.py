# SPDX-License-Identifier: Apache-2.0
"""`python -m coordinator` as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


class CoordinatorProcess:
    """Started, and ready.

    Attributes:
        line: by which it has said that it is; empty: it has ended.
        address: where it serves.
    """

    def __init__(self, endpoints: tuple[str, ...], prefix: str, *options: str) -> None:
        command = [sys.executable, "-m", "coordinator", "--etcd", ",".join(endpoints), "--prefix", prefix]
        self.process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", *options],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.address = self.line.split()[-1] if self.line else ""

    def end(self, number: int) -> int:
        """Its exit status after this signal."""
        self.process.send_signal(number)
        return self.process.wait(30)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def coordinator_process() -> Iterator[Callable[..., CoordinatorProcess]]:
    """Start one: etcd's endpoints, the prefix, more options. All end with the test."""
    started: list[CoordinatorProcess] = []

    def start(endpoints: tuple[str, ...], prefix: str, *options: str) -> CoordinatorProcess:
        started.append(CoordinatorProcess(endpoints, prefix, *options))
        return started[-1]

    yield start
    for one in started:
        one.close()
