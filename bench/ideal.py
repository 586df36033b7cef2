# SPDX-License-Identifier: Apache-2.0
"""The most that jobs can get out of shared devices: the same phases, a queue in order, switches, no more. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

Phases = Iterator[tuple[float, float]]
"""For each step of a job: seconds that it is busy elsewhere, then seconds that it needs the devices."""


def duty(jobs: Sequence[Phases], switch: float, begin: float, end: float) -> float:
    """The part of the time from ``begin`` to ``end`` (s) in which some job is busy on the devices.

    Each job asks when its time elsewhere is over, is served in order, and a switch of ``switch`` seconds comes before a
    turn unless the same job had the last one. Asking, granting and giving back take no time.
    """
    asks: list[tuple[float, int]] = []
    needs: list[float] = []
    for number, phases in enumerate(jobs):
        idle, busy = next(phases)
        needs.append(busy)
        heapq.heappush(asks, (idle, number))
    now, resident, used = 0.0, -1, 0.0
    while asks:
        asked, number = heapq.heappop(asks)
        start = max(now, asked) + (switch if number != resident else 0.0)
        if start >= end:
            break
        now, resident = start + needs[number], number
        used += max(0.0, min(now, end) - max(start, begin))
        idle, needs[number] = next(jobs[number])
        heapq.heappush(asks, (now + idle, number))
    return used / (end - begin)
