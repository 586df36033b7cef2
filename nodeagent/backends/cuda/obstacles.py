# SPDX-License-Identifier: Apache-2.0
"""What a process may have that the driver cannot move, judged before anything is moved, by what /proc shows.

The driver does not say so before it is too late: of some things the checkpoint succeeds, the restore fails, and the
process is lost. Each rule, how it was measured and what it cannot see is in docs/cuda.md. Where a rule cannot tell, it
refuses: a job that keeps the devices and is told why can be helped, one that was saved for good cannot.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
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
_NCCL_IDLE_BYTES = 6 << 20
"""Of its code a process that only links NCCL has touched 1 MiB, one that has made a communicator 15 MiB."""

_CONTEXT = re.compile(r"/dev/nvidia\d+")
_UVM = "/dev/nvidia-uvm"
_UVM_BYTES = 2 << 20
"""What a context has mapped of it without any managed memory."""

_TORCH_COUNTERS = re.compile(r"/dev/shm/torch_\d+_\d+_\d+$")
_TORCH_COUNTERS_BYTES = 80 << 10
"""PyTorch counts in a file of 10,000 numbers who uses the device tensors that it has given away."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_HUGE = (2 << 20) // _PAGE
_PRESENT = 1 << 63


@dataclass(frozen=True, slots=True)
class Mapped:
    """A line of /proc/<pid>/maps.

    Attributes:
        touched: bytes of it that the process has used; counted for NCCL's code alone.
    """

    name: str
    mode: str
    bytes: int
    touched: int = 0


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
    mapped: tuple[Mapped, ...] = ()


def look(pid: int) -> Found | None:
    """What there is to judge by, or None for a process that has ended. Raises PermissionError."""
    environ = procfs.environ(pid)
    if environ is None:
        return None
    folder = Path(f"/proc/{pid}")
    try:
        threads = frozenset(_names(folder / "task"))
        text = (folder / "maps").read_text(encoding="utf-8", errors="replace")
        mapped = tuple(read_maps(text, lambda first, end: _touched(folder / "pagemap", first, end)))
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Found(environ, threads, mapped)


def judge(found: Found) -> str:
    """Why the process could not be moved, or an empty string."""
    return _nccl(found) or _managed(found) or _shared(found)


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
    shared = next((one.name for one in found.mapped if _NCCL_SHM.match(one.name)), None)
    if shared:
        return f"it has {shared} mapped"
    library = [one for one in found.mapped if _NCCL_LIBRARY.search(one.name)]
    touched = sum(one.touched for one in library)
    if touched > _NCCL_IDLE_BYTES:
        return f"it has used {touched >> 20} MiB of NCCL's code, as only who has made a communicator does"
    ranks = next((name for name in _RANKS if found.environ.get(name, "1") not in ("", "0", "1")), None)
    if ranks and library:
        return f"it is one of several ranks ({ranks}={found.environ[ranks]}) and has NCCL loaded"
    return ""


def _managed(found: Found) -> str:
    contexts = {one.name for one in found.mapped if _CONTEXT.fullmatch(one.name) and one.mode == "rw-s"}
    mapped = sum(one.bytes for one in found.mapped if one.name == _UVM)
    more = mapped - _UVM_BYTES * max(1, len(contexts))
    if more <= 0:
        return ""
    return (
        f"managed memory: {more >> 20} MiB of it are mapped, which the driver does not move; "
        "allocate with cudaMalloc instead of cudaMallocManaged"
    )


def _shared(found: Found) -> str:
    counters = (one for one in found.mapped if _TORCH_COUNTERS.match(one.name))
    name = next((one.name for one in counters if one.bytes == _TORCH_COUNTERS_BYTES), None)
    if name is None:
        return ""
    return (
        f"CUDA IPC: PyTorch counts in {name} who uses the device tensors that it shares with other processes, which "
        "could not be restored; send host tensors instead"
    )


def read_maps(text: str, touched: Callable[[int, int], int]) -> Iterator[Mapped]:
    """The named mappings in the text of /proc/<pid>/maps. ``touched`` counts bytes used between two addresses."""
    for line in text.splitlines():
        where, mode, _, _, _, *name = line.split(None, 5)
        if not name:
            continue
        first, end = (int(one, 16) for one in where.split("-"))
        code = mode[2] == "x" and _NCCL_LIBRARY.search(name[0])
        yield Mapped(name[0], mode, end - first, touched(first, end) if code else 0)


def count_touched(pages: Iterable[int], first: int) -> int:
    """Pages present by their pagemap entries, of which the first is of page number ``first``.

    A stretch that is there as one huge page counts as untouched: the kernel may have made it of a single small one.
    """
    total = run = 0
    for number, entry in enumerate(pages, first):
        if number % _HUGE == 0:
            run = 0
        if entry & _PRESENT:
            total += 1
            run += 1
            if run == _HUGE:
                total -= _HUGE
    return total


def _touched(pagemap: Path, first: int, end: int) -> int:
    entries = array("Q")
    with pagemap.open("rb") as file:
        file.seek(first // _PAGE * entries.itemsize)
        entries.frombytes(file.read((end - first) // _PAGE * entries.itemsize))
    return count_touched(entries, first // _PAGE) * _PAGE


def _names(tasks: Path) -> list[str]:
    names = []
    for task in tasks.iterdir():
        try:
            names.append((task / "comm").read_text(encoding="utf-8", errors="replace").strip())
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread that has ended
    return names
