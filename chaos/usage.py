# SPDX-License-Identifier: Apache-2.0
"""What processes use, sampled over time, and whether it grows."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.beside import Beside
from ledger.embedded import EtcdMember

_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Use:
    """Of one process. ``memory``: bytes of its proportional set size, so that what is shared counts once."""

    memory: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class Sample:
    """At ``mono`` (ns of CLOCK_MONOTONIC), when so many sessions had been ``opened``."""

    mono: int
    opened: int
    uses: Mapping[str, Use]


def use_of(pid: int) -> Use:
    """Raises OSError when there is no such process."""
    process = Path(f"/proc/{pid}")
    found = re.search(r"^Pss:\s+(\d+) kB$", (process / "smaps_rollup").read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None, "the kernel says how much a process uses"
    return Use(int(found[1]) * 1024, sum(1 for _ in (process / "fd").iterdir()))


class Sampler(Beside):
    """``with Sampler(pids, opened, every)``: samples in the background until the block ends.

    Args:
        pids: by name.
        opened: says how many sessions have been opened.
        every: seconds.
    """

    def __init__(self, pids: Mapping[str, int], opened: Callable[[], int], every: float) -> None:
        super().__init__("sampler", _SECONDS)
        self._pids, self._opened, self._every = dict(pids), opened, every
        self._samples: list[Sample] = []

    @property
    def samples(self) -> Sequence[Sample]:
        return tuple(self._samples)

    def take(self) -> Sample:
        """One more, now."""
        sample = Sample(time.monotonic_ns(), self._opened(), {name: use_of(pid) for name, pid in self._pids.items()})
        self._samples.append(sample)
        return sample

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self.take()


def slope(points: Sequence[tuple[float, float]]) -> float:
    """By least squares. 0 where all points have one x."""
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def growth(samples: Sequence[Sample], name: str, warm: float) -> float:
    """Bytes for each session, over the samples after the first ``warm`` part of the sessions."""
    first = samples[-1].opened * warm
    return slope([(one.opened, one.uses[name].memory) for one in samples if one.opened >= first])


def leases(member: EtcdMember) -> int:
    """Leases in etcd, by the member's own count of those granted and ended since it started. Raises OSError."""
    with urllib.request.urlopen(f"{member.metrics_url}/metrics", timeout=_SECONDS) as answer:
        text = answer.read().decode()
    counts = [re.search(rf"^etcd_debugging_lease_{what}_total (\S+)$", text, re.MULTILINE) for what in _COUNTED]
    granted, revoked = (int(float(one[1])) if one else 0 for one in counts)
    return granted - revoked


_COUNTED = ("granted", "revoked")
