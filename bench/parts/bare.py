# SPDX-License-Identifier: Apache-2.0
"""Part a: etcd alone, by the project's own client of it."""

from __future__ import annotations

from bench.measure import Case, Sample
from bench.parts.names import BARE, DELIVERY
from bench.store import Store


def cases(store: Store) -> list[Case]:
    """A transaction of one compare and one put; and until another connection's watch has brought such a one."""
    return [
        Case(BARE, lambda: Sample(store.bare(), 1)),
        Case(DELIVERY, lambda: Sample(store.delivery(), 1)),
    ]
