# SPDX-License-Identifier: Apache-2.0
"""A run as text and as JSON, and two runs beside each other."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.figures import Found, Row
from bench.machine import Machine


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Lines, with a heading wherever the figures are others."""
    for columns, group in itertools.groupby(rows, lambda row: tuple(row.figures)):
        lines = list(group)
        width = max(len(row.name) for row in lines) + 2
        yield "   " + "".ljust(width) + "".join(f"{column:>{_width(column)}}" for column in columns)
        for row in lines:
            cells = (f"{_number(row.figures[column]):>{_width(column)}}" for column in columns)
            yield f"{row.part}  {row.name:{width}}" + "".join(cells)


def markdown(run: Mapping[str, Any]) -> Iterator[str]:
    """A run's JSON as it stands in a document: the machine, then a table for each kind of row."""
    machine = run["machine"]
    fsync = "with" if run["settings"].get("fsync") else "without"
    yield (
        f"{machine['processor']}, {machine['cores']} cores (load {machine['load']:.1f} before), "
        f"kernel {machine['kernel']}, Python {machine['python']}, etcd {machine['etcd']} {fsync} fsync, "
        + ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
        + f", commit {machine['commit']}."
    )
    for columns, group in itertools.groupby(run["rows"], lambda row: tuple(row["figures"])):
        yield from ("", "| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|")
        for row in group:
            yield f"| {row['name']} | " + " | ".join(_number(row["figures"][column]) for column in columns) + " |"
    yield from ("", *(f"- {note}" for note in run["notes"]))


def checks(found: Sequence[Found]) -> Iterator[str]:
    """What was promised, and whether it was so on this machine."""
    for check in (check for one in found for check in one.checks):
        word, sign = ("holds" if check.holds else "DOES NOT HOLD"), (">=" if check.at_least else "<=")
        yield f"{check.part}  {check.what}: {_number(check.value)} (wanted {sign} {check.limit:g}): {word}"


def to_json(machine: Machine, settings: Mapping[str, Any], found: Sequence[Found], seconds: float) -> str:
    """All of it. Figures' names end with their units."""
    return json.dumps(
        {
            "machine": asdict(machine),
            "settings": dict(settings),
            "seconds": round(seconds, 1),
            "rows": [asdict(row) for one in found for row in one.rows],
            "checks": [{**asdict(check), "holds": check.holds} for one in found for check in one.checks],
            "notes": [note for one in found for note in one.notes],
        },
        indent=1,
        ensure_ascii=False,
    )


def compare(base: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Each figure of both runs as a ratio, now to base. Only of one machine do absolute times say anything."""
    if (
        base["machine"]["processor"] != now["machine"]["processor"]
        or base["machine"]["cores"] != now["machine"]["cores"]
    ):
        yield "The machines differ: only the ratios within a run can be compared."
    before = {(row["part"], row["name"]): row["figures"] for row in base["rows"]}
    width = max((len(row["name"]) for row in now["rows"]), default=0) + 2
    for row in now["rows"]:
        old = before.get((row["part"], row["name"]))
        if old is None:
            yield f"{row['part']}  {row['name']:{width}}  new"
            continue
        changes = [
            f"{name} {_number(old[name])} → {_number(value)} ({value / old[name]:.2f}x)"
            for name, value in row["figures"].items()
            if name in old and name not in ("count", "error_ms") and old[name]
        ]
        yield f"{row['part']}  {row['name']:{width}}" + ", ".join(changes)


def _width(column: str) -> int:
    return max(len(column), 7) + 2


def _number(value: float) -> str:
    size = abs(value)
    if value == int(value) and size < 1e7:
        return str(int(value))
    return f"{value:.2f}" if size < 100 else f"{value:.1f}" if size < 1e4 else f"{value:.4g}"
