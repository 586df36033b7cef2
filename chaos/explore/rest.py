# SPDX-License-Identifier: Apache-2.0
"""Whether what the system does by itself always ends: a graph has no cycle if it can be taken away from its ends."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence

from chaos.explore.part import Edges


def cycle(edges: Sequence[Edges]) -> list[int]:
    """Fingerprints of the states of one cycle, in its order; empty if there is none.

    In terms of states alike: what comes back to a state with other names goes on to come back to it itself.
    """
    place: dict[int, int] = {}
    for one in edges:
        for mark in array("Q", one.sources):
            place.setdefault(mark, len(place))
    after = array("l", bytes(8 * len(place)))
    before_count = array("l", bytes(8 * (len(place) + 1)))
    targets = array("l")
    starts = array("l", [0])
    for one in edges:
        wanted = iter(array("Q", one.targets))
        for mark, count in zip(array("Q", one.sources), array("B", one.counts), strict=True):
            follow = list(itertools.islice(wanted, count))
            if place[mark] < len(starts) - 1:
                continue  # it was looked into before, with other faults left: they change nothing here
            for target in map(place.__getitem__, follow):
                targets.append(target)
                before_count[target + 1] += 1
            after[len(starts) - 1] = count
            starts.append(len(targets))
    for number in range(len(place)):
        before_count[number + 1] += before_count[number]
    where, before = before_count[:], array("l", bytes(8 * len(targets)))
    for source in range(len(place)):
        for target in targets[starts[source] : starts[source + 1]]:
            before[where[target]] = source
            where[target] += 1
    ready = [number for number, count in enumerate(after) if count == 0]
    while ready:
        number = ready.pop()
        for earlier in before[before_count[number] : before_count[number + 1]]:
            after[earlier] -= 1
            if after[earlier] == 0:
                ready.append(earlier)
    first = next((number for number, count in enumerate(after) if count > 0), None)
    if first is None:
        return []
    marks = list(place)
    seen: dict[int, int] = {}
    number = first
    while number not in seen:
        seen[number] = len(seen)
        number = next(one for one in targets[starts[number] : starts[number + 1]] if after[one] > 0)
    return [marks[one] for one in list(seen)[seen[number] :]]
