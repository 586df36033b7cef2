# SPDX-License-Identifier: Apache-2.0
"""The helper of this process, and processes that are made to stand still."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.tsclient.waiting import until


def helpers_of(pid: int) -> list[int]:
    """The pids of its helpers that have not ended."""
    children = Path(f"/proc/{pid}/task/{pid}/children").parent.parent
    found = [int(one) for task in children.iterdir() for one in (task / "children").read_text().split()]
    return [one for one in found if b"tsclient.helper" in Path(f"/proc/{one}/cmdline").read_bytes()]


def helper_pid(pid: int | None = None) -> int:
    """The one helper of a process; None: of this one."""
    (one,) = helpers_of(os.getpid() if pid is None else pid)
    return one


def state(pid: int) -> str:
    """As in proc_pid_stat(5); "gone" if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """It stands still for the length of the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: state(pid) == "T")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
