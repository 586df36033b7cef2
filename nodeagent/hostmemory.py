# SPDX-License-Identifier: Apache-2.0
"""Whether the host has room for what is to be saved: the machine, and the control group of each process.

A saved process keeps its bytes in its own address space, so they count against its own control group; the
machine's figure alone lets the kernel kill the job. Page cache that the kernel would give up counts as room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ledger.records import Process
from nodeagent import procfs


class HostMemory(Protocol):
    """The room for parked state on this node."""

    def total(self) -> int:
        """Bytes in all."""

    def shortage(self, needs: Mapping[Process, int], promised: int, parked: int) -> str:
        """Why ``needs`` (bytes for each process) do not fit, or an empty string.

        ``promised``: bytes reserved by other switches in hand; ``parked``: bytes that are parked here already.
        """


@dataclass(frozen=True, slots=True)
class FixedMemory:
    """So many bytes for parked state, whatever the machine says: for the simulated device, and for a limit."""

    limit: int

    def total(self) -> int:
        return self.limit

    def shortage(self, needs: Mapping[Process, int], promised: int, parked: int) -> str:
        return _compare(sum(needs.values()), self.limit - parked, promised, "the host memory for parked state")


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """MemAvailable and the headroom of every control group above a process."""

    proc: Path = Path("/proc")
    cgroups: Path = Path("/sys/fs/cgroup")

    def total(self) -> int:
        return self._meminfo("MemTotal")

    def shortage(self, needs: Mapping[Process, int], promised: int, parked: int) -> str:
        del parked  # MemAvailable has it taken off already
        short = _compare(sum(needs.values()), self._meminfo("MemAvailable"), promised, "the machine's memory")
        if short:
            return short
        wanted: dict[Path, int] = {}
        for process, size in needs.items():
            for folder in _folders(self.cgroups, procfs.cgroup(process.pid) or ""):
                wanted[folder] = wanted.get(folder, 0) + size
        for folder, size in wanted.items():
            room = headroom(folder)
            if room is not None and (short := _compare(size, room, 0, f"the control group {folder}")):
                return short
        return ""

    def _meminfo(self, name: str) -> int:
        for line in (self.proc / "meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) << 10
        raise OSError(f"no {name} in {self.proc / 'meminfo'}")


def headroom(folder: Path) -> int | None:
    """Bytes that a control group may still take; None where it has no limit. Versions 1 and 2."""
    for limit_name, usage_name, cache_names in (
        ("memory.max", "memory.current", ("active_file", "inactive_file")),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")),
    ):
        try:
            limit = (folder / limit_name).read_text(encoding="ascii").strip()
            if limit == "max":
                return None
            used = int((folder / usage_name).read_text(encoding="ascii"))
            stat = dict(line.split() for line in (folder / "memory.stat").read_text("ascii").splitlines())
        except FileNotFoundError:
            continue
        return int(limit) - used + sum(int(stat.get(name, 0)) for name in cache_names)
    return None


def _folders(root: Path, content: str) -> Iterator[Path]:
    """The memory control group of a process and those above it, from /proc/<pid>/cgroup."""
    for line in content.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base = root
        elif "memory" in controllers.split(","):
            base = root / "memory"
        else:
            continue
        folder = base / path.lstrip("/")
        yield folder
        yield from (one for one in folder.parents if one.is_relative_to(base))


def _compare(need: int, room: int, promised: int, what: str) -> str:
    if need <= room - promised:
        return ""
    other = f", of which {promised} are reserved" if promised else ""
    return f"{need} bytes do not fit into {what}: {max(room, 0)} are free{other}"
