# SPDX-License-Identifier: Apache-2.0
"""What a process may have that the driver saves and then can never bring back.

The driver does not say so before it is too late: the checkpoint succeeds, the restore fails, and the process is lost.
So it is judged before anything is moved, by what /proc shows from outside. Each rule, how it was measured and what it
cannot see is in docs/cuda.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nodeagent import procfs

NCCL_SETTINGS: Mapping[str, str] = {"NCCL_CUMEM_ENABLE": "0", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
"""With these *together*, and only then, a process that has NCCL communicators can be restored."""

_RANKS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
"""How launchers tell a process of how many it is one: torchrun, Open MPI, MPICH, Slurm."""

_NCCL_THREAD = re.compile(r"pt_nccl_|NCCL ")
_NCCL_SHM = re.compile(r"/dev/shm/nccl-")
_NCCL_LIBRARY = re.compile(r"/libnccl\.so")


@dataclass(frozen=True, slots=True)
class Found:
    """What /proc shows of one process.

    Attributes:
        environ: what it was started with; what it has set since cannot be seen.
        threads: the names of its threads.
        mapped: the files that are mapped into it.
    """

    environ: Mapping[str, str] = field(default_factory=dict)
    threads: frozenset[str] = frozenset()
    mapped: frozenset[str] = frozenset()


def look(pid: int) -> Found | None:
    """What there is to judge by, or None for a process that has ended. Raises PermissionError."""
    environ = procfs.environ(pid)
    if environ is None:
        return None
    try:
        threads = frozenset(_names(Path(f"/proc/{pid}/task")))
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Found(environ, threads, frozenset(parts[5] for line in lines if len(parts := line.split(None, 5)) == 6))


def judge(found: Found) -> str:
    """Why the process could not be restored, or an empty string."""
    return _nccl(found)


def _nccl(found: Found) -> str:
    evidence = _evidence_of_nccl(found)
    if not evidence or all(found.environ.get(name) == value for name, value in NCCL_SETTINGS.items()):
        return ""
    settings = " ".join(f"{name}={value}" for name, value in NCCL_SETTINGS.items())
    return (
        f"NCCL: {evidence}, and a process with NCCL communicators could not be restored; start the job with {settings}"
    )


def _evidence_of_nccl(found: Found) -> str:
    thread = next((one for one in sorted(found.threads) if _NCCL_THREAD.match(one)), None)
    if thread:
        return f"it has the thread {thread!r}"
    shared = next((one for one in sorted(found.mapped) if _NCCL_SHM.match(one)), None)
    if shared:
        return f"it has {shared} mapped"
    ranks = next((name for name in _RANKS if found.environ.get(name, "1") not in ("", "0", "1")), None)
    if ranks and any(_NCCL_LIBRARY.search(one) for one in found.mapped):
        return f"it is one of several ranks ({ranks}={found.environ[ranks]}) and has NCCL loaded"
    return ""


def _names(tasks: Path) -> list[str]:
    names = []
    for task in tasks.iterdir():
        try:
            names.append((task / "comm").read_text(encoding="utf-8", errors="replace").strip())
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread that has ended
    return names
