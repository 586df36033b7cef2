# SPDX-License-Identifier: Apache-2.0
"""Run a command that the kernel kills when its parent dies: `die_with_parent.py PARENT_PID COMMAND...`.

A launcher of its own rather than a `preexec_fn`, which is not safe in a process with threads. The pid stays
the same, since the command takes the launcher's place. Linux; prctl(2), PR_SET_PDEATHSIG. The "parent" is the
*thread* that started the launcher: start it from one that lives as long as the process does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Arm the signal, then become the command. Exits with 1 if the parent has died before that."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent died before the command was started")
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
