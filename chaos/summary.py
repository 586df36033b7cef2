# SPDX-License-Identifier: Apache-2.0
"""The results of many runs as a table for people: what they add up to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from chaos.results import Result, total

_PHASES = ("PREPARING", "COMMITTING", "RELEASING")


def summary(results: Sequence[Result]) -> Iterator[str]:
    """Lines: for each state of the code its scenarios, in the order of their first run."""
    for commit in dict.fromkeys(one.commit for one in results):
        yield f"code {commit}"
        own = [one for one in results if one.commit == commit]
        for scenario in dict.fromkeys(one.scenario for one in own):
            yield from _of_scenario(scenario, [one for one in own if one.scenario == scenario])


def _of_scenario(scenario: str, results: Sequence[Result]) -> Iterator[str]:
    figures = total(results)
    seeds = sorted({one.seed for one in results})
    cut = sum(not one.whole for one in results)
    minutes = sum(one.seconds for one in results) / 60
    yield f"  {scenario}"
    pieces = f"{len(results)} runs" + (f", {cut} of them cut short" if cut else "")
    yield f"    {pieces}; {len(seeds)} seeds ({_ranges(seeds)}); {minutes:,.1f} minutes"
    if figures.faults:
        by_name = ", ".join(f"{figures.hits[name]} {name}" for name in _ordered(figures.hits))
        counting = f"{figures.counting} count: {by_name or 'none'}"
        yield f"    {figures.switches:,} switches; {figures.faults} faults, {counting}"
    if figures.delays:
        yield f"    delay: {percentiles(figures.delays)}"
    broken = [what for one in results for what in one.violations]
    yield f"    {len(broken)} violations"
    for one in results:
        for what in one.violations:
            yield f"      seed {one.seed}, {one.began}: {what}"


def percentiles(seconds: Sequence[float]) -> str:
    """Median, p99 and largest."""
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    parts = (
        f"median {median(ordered) * 1000:,.0f} ms",
        f"p99 {p99 * 1000:,.0f} ms",
        f"largest {ordered[-1] * 1000:,.0f} ms",
    )
    return f"{', '.join(parts)}, of {len(ordered)}"


def _ordered(names: Iterable[str]) -> list[str]:
    every = set(names)
    return [*(name for name in _PHASES if name in every), *sorted(every.difference(_PHASES))]


def _ranges(numbers: Sequence[int]) -> str:
    """1-4, 7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
