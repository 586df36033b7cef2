# SPDX-License-Identifier: Apache-2.0
"""What is measured, a file for each part."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bench.figures import Found
from bench.parts import latency
from bench.settings import Settings
from bench.system import Bench

PARTS = {
    "a": "etcd: a guarded transaction, and put → watch delivery",
    "b": "the floor: a hand-off's input and output, without any logic",
    "d": "acquire + yield and hand-off, one node",
}


def measure(bench: Bench, settings: Settings, parts: Collection[str]) -> Iterator[Found]:
    """Measure one after another, but parts a to d together."""
    if together := [part for part in parts if part in "abcd"]:
        yield latency.run(bench, settings, together)
