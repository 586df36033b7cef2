# SPDX-License-Identifier: Apache-2.0
"""Every two faults together: hundreds of small models, for what nobody has thought of.

The set of `sets.py` has the models that somebody wrote down. A fault of the core needs two things at once as a rule,
and which two is not known before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement

from chaos.explore.faults import ANY, FAULTS
from chaos.explore.size import Size

NEEDS: dict[str, tuple[str, ...]] = {
    "force": ("delete",),
    "taken": ("respec",),
    "late": ("restart",),
    "away": ("restart",),
    "ahead": ("restart",),
    "drop": ("restart", "away"),
    "pardon": ("unfit",),
}
"""Faults that cannot happen without others before them."""

HOLE = frozenset({"force", "drop"})
"""The pair that is known to break something, and why that stands is in docs/explorer.md: on two nodes or more."""


def pairs(size: Size) -> Iterator[Size]:
    """For each two faults, and each fault twice, this size with both of them and with what they need to happen.

    A fault that the other one of its pair needs is there for that alone, not once more.

    A new spec takes the first node out of the group; where there is only one, it is the same spec again. For a device
    that another group has it takes the last node in. A replica's death is in no pair: it adds no state.
    """
    counted = [fault for fault in FAULTS if fault not in ANY]
    for pair in combinations_with_replacement(counted, 2):
        if frozenset(pair) != HOLE or size.nodes == 1:
            faults = Counter(pair) | Counter(need for fault in pair for need in NEEDS.get(fault, ()))
            yield replace(size, faults=tuple(faults.items()), specs=_specs(size, faults))


def _specs(size: Size, faults: Counter[str]) -> tuple[tuple[int, ...], ...]:
    if "respec" not in faults:
        return size.specs
    every = tuple(range(size.nodes))
    if size.nodes == 1:
        return (every,) * (faults["respec"] + 1)
    specs = (every[:-1], every) if "taken" in faults else (every, every[1:])
    return (specs * faults["respec"])[: faults["respec"] + 1]
