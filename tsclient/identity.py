# SPDX-License-Identifier: Apache-2.0
"""A process, told apart from any other that ever had its pid."""

from __future__ import annotations

import os
from pathlib import Path

from timeslice_proto.v1 import records_pb2

# Fields of /proc/<pid>/stat after the command name, which may itself hold spaces and brackets: start_time is
# the 22nd of all, state the 3rd and the first after the name. proc_pid_stat(5).
_START_TIME_AFTER_NAME = 22 - 3


def this_process() -> records_pb2.Process:
    """As `process`, for the calling one."""
    return process(os.getpid())


def process(pid: int) -> records_pb2.Process:
    """Boot id, pid and start time (clock ticks after boot) of a process that is there.

    The pid is the one of this process's own namespace; the node's agent translates it to the host's.

    Raises:
        OSError: there is no such process.
    """
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    start_time = int(stat.rpartition(")")[2].split()[_START_TIME_AFTER_NAME])
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return records_pb2.Process(boot_id=boot_id, pid=pid, start_time=start_time)
