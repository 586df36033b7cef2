# SPDX-License-Identifier: Apache-2.0
"""A child process that dies with this one, however that ends: how it is started, and how it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

REAP_SECONDS = 10.0
"""Seconds until one that was killed is gone."""

_LAUNCHER = Path(__file__).with_name("die_with_parent.py")

# The kernel ends a child when the thread that started it ends. This one lasts as long as the process.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")


def spawn(
    command: Sequence[str],
    *,
    stdin: int | IO[bytes],
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    environment: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    """Start it, in a process group of its own: Ctrl-C ends this program first, and this program its children.

    Raises OSError.
    """
    return _spawner.submit(
        subprocess.Popen[bytes],
        [sys.executable, "-I", str(_LAUNCHER), str(os.getpid()), *command],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environment,
        process_group=0,
    ).result()


def end(process: subprocess.Popen[bytes], number: signal.Signals, within: float) -> None:
    """End it by a signal, after so many seconds by SIGKILL; returns when it is gone. One that stands still is woken.

    Raises subprocess.TimeoutExpired: it resists even SIGKILL.
    """
    if process.poll() is not None:
        return
    process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(REAP_SECONDS)
