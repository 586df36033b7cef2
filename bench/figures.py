# SPDX-License-Identifier: Apache-2.0
"""What a run has found: rows of figures by part, and what they had to show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.measure import Summary

MS = 1e3


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table. Figures by name; a name ends with its unit where it has one (``p50_ms``)."""

    part: str
    name: str
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Check:
    """Something that the project promises, with what was measured.

    Attributes:
        at_least: ``limit`` is a lower bound; else an upper one.
    """

    part: str
    what: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Found:
    """What one part, or several that were measured together, have found.

    Attributes:
        notes: what a reader must know: sentences.
    """

    rows: tuple[Row, ...] = ()
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = field(default=())


def timed(part: str, name: str, summary: Summary, **ratios: float) -> Row:
    """A row of a case: ratios first."""
    figures = {**ratios, "p50_ms": summary.p50 * MS, "p99_ms": summary.p99 * MS, "error_ms": summary.error * MS}
    if summary.revisions is not None:
        figures["revisions"] = summary.revisions
    return Row(part, name, {**figures, "count": summary.count})
