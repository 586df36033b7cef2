# SPDX-License-Identifier: Apache-2.0
"""What an etcd member counts about itself."""

from __future__ import annotations

import re
import urllib.request
from collections import Counter

from ledger.embedded import EtcdMember

_SECONDS = 10.0


def metric(member: EtcdMember, name: str) -> float:
    """The value of one of the member's metrics without labels. Raises AssertionError if it has none."""
    with urllib.request.urlopen(f"{member.metrics_url}/metrics", timeout=_SECONDS) as answer:
        found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None, f"etcd has no metric {name}"
    return float(found[1])


def by_method(member: EtcdMember, name: str) -> Counter[str]:
    """One of the member's counters of gRPC, by the method's name: `grpc_server_started_total` and its like."""
    with urllib.request.urlopen(f"{member.metrics_url}/metrics", timeout=_SECONDS) as answer:
        text = answer.read().decode()
    found: Counter[str] = Counter()
    for labels, value in re.findall(rf"^{name}{{([^}}]*)}} (\S+)$", text, re.MULTILINE):
        method = re.search(r'grpc_method="(\w+)"', labels)
        assert method is not None, f"etcd's metric {name} has no label for the method: {labels}"
        found[method[1]] += int(float(value))
    return found
