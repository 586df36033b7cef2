# SPDX-License-Identifier: Apache-2.0
"""What is measured, a file for each part."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bench.figures import Found
from bench.parts import duty, groups, isolation, latency, nodes, replicas, startup, waiters
from bench.settings import Settings
from bench.system import Bench

PARTS = {
    "a": "etcd: a guarded transaction, and put → watch delivery",
    "b": "the floor: a hand-off's input and output, without any logic",
    "c": "etcdctl lock, etcd's own, handing over between waiters",
    "d": "acquire + yield and hand-off, one node",
    "e": "1 to 64 nodes, devices without and with a cost",
    "f": "1 to 1,000 groups, four jobs in each, beside the floor",
    "g": "10 to 10,000 waiters on one group",
    "h": "1, 3 and 5 replicas",
    "i": "start-up of each program",
    "j": "duty cycle of two to four jobs",
    "k": "a switch of a minute in one group beside the others",
}

_ALONE = {
    "e": nodes.run,
    "f": groups.run,
    "g": waiters.run,
    "h": replicas.run,
    "i": startup.run,
    "j": duty.run,
    "k": isolation.run,
}
"""Parts that are measured by themselves."""


def measure(bench: Bench, settings: Settings, parts: Collection[str]) -> Iterator[Found]:
    """Measure one after another, but parts a to d together."""
    if together := [part for part in parts if part in "abcd"]:
        yield latency.run(bench, settings, together)
    for part in parts:
        if part in _ALONE:
            yield _ALONE[part](bench, settings)
