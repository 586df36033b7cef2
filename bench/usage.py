# SPDX-License-Identifier: Apache-2.0
"""What processes of this machine use: processor time and memory, and what an etcd member has been asked. Linux."""

from __future__ import annotations

import os
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ledger.embedded import EtcdMember

_SECONDS = 10.0
_SCHEDULED = 2


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of a process so far, user's and kernel's; clock_getcpuclockid(3).

    Raises OSError if it has ended.
    """
    return time.clock_gettime((~pid << 3) | _SCHEDULED)


def resident_bytes(pid: int) -> int:
    """Memory of the process that is in RAM. Raises OSError if it has ended."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """Of several processes by name, at one moment.

    Attributes:
        at: seconds of the monotonic clock.
        cpu: processor seconds of each so far.
        resident: bytes of each.
    """

    at: float
    cpu: Mapping[str, float]
    resident: Mapping[str, int]

    @classmethod
    def of(cls, pids: Mapping[str, int]) -> Self:
        cpu = {name: cpu_seconds(pid) for name, pid in pids.items()}
        return cls(time.monotonic(), cpu, {name: resident_bytes(pid) for name, pid in pids.items()})

    def since(self, before: Usage) -> Mapping[str, float]:
        """Processor seconds of each in between."""
        return {name: self.cpu[name] - before.cpu[name] for name in self.cpu}


def requests(member: EtcdMember) -> Counter[str]:
    """How many requests the member has answered, by gRPC method; of a stream, how many messages it has had."""
    with urllib.request.urlopen(f"{member.metrics_url}/metrics", timeout=_SECONDS) as answer:
        text = answer.read().decode()
    found: Counter[str] = Counter()
    for labels, value in re.findall(r"^grpc_server_msg_received_total{([^}]*)} (\S+)$", text, re.MULTILINE):
        method = re.search(r'grpc_method="(\w+)"', labels)
        if method is not None:
            found[method[1]] += int(float(value))
    return found
