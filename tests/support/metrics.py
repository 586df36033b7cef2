# SPDX-License-Identifier: Apache-2.0
"""What an etcd member counts about itself."""

from __future__ import annotations

import re
import urllib.request

from ledger.embedded import EtcdMember

_SECONDS = 10.0


def metric(member: EtcdMember, name: str) -> float:
    """The value of one of the member's metrics without labels. Raises AssertionError if it has none."""
    with urllib.request.urlopen(f"{member.metrics_url}/metrics", timeout=_SECONDS) as answer:
        found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None, f"etcd has no metric {name}"
    return float(found[1])
