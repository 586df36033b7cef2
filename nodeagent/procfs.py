# SPDX-License-Identifier: Apache-2.0
"""What /proc says about a process. A process that has ended is None, never an error. Linux; proc(5)."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from ledger.records import Process

_PROC = Path("/proc")
_POD = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})")
_CHUNK = 1 << 16
_STATE, _START_TIME = 0, 19  # fields 3 and 22 of stat, counted after the command's name


@cache
def boot_id() -> str:
    """The id of this boot of the machine."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def process(pid: int) -> Process | None:
    """The process that has ``pid`` now. A zombie counts as ended: it holds nothing any more."""
    fields = _stat(pid)
    if fields is None or fields[_STATE] in (b"Z", b"X"):
        return None
    return Process(boot_id(), pid, int(fields[_START_TIME]))


def alive(one: Process) -> bool:
    """Whether that very process is still there, not another that got its pid."""
    return one.boot_id == boot_id() and process(one.pid) == one


def environ(pid: int) -> dict[str, str] | None:
    """The environment that the process was started with."""
    raw = _read(pid, "environ")
    if raw is None:
        return None
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if b"=" in item)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def cgroup(pid: int) -> str | None:
    """The content of /proc/<pid>/cgroup."""
    raw = _read(pid, "cgroup")
    return None if raw is None else raw.decode(errors="replace")


def resident_bytes(pid: int) -> int:
    """Memory of the process that is in RAM; 0 for one that has ended."""
    raw = _read(pid, "statm")
    return int(raw.split()[1]) * os.sysconf("SC_PAGE_SIZE") if raw else 0


def pod_uid(pid: int) -> str | None:
    """The uid of the Kubernetes pod whose cgroup the process is in, or None."""
    found = _POD.search(cgroup(pid) or "")
    return found[1].replace("_", "-") if found else None


def _stat(pid: int) -> list[bytes] | None:
    raw = _read(pid, "stat")
    if raw is None:
        return None
    # The command's name stands in parentheses and may itself hold any character, parentheses too.
    return raw.rpartition(b")")[2].split()


def _read(pid: int, name: str) -> bytes | None:
    # By the system's own calls: each look reads some of these, and a Path takes twice as long.
    try:
        file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.read(file, _CHUNK)
            if name == "stat":
                return found  # one line, which comes whole: nothing is left to be asked for
            while more := os.read(file, _CHUNK):
                found += more
            return found
        finally:
            os.close(file)
    except (FileNotFoundError, ProcessLookupError):
        return None
