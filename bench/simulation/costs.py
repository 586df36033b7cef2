# SPDX-License-Identifier: Apache-2.0
"""What each step costs, out of a run's JSON. Seconds of one core of the machine that it was measured on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MS = 1e-3
_BEATS_IN_TTL = 3
_MINUTE = 60.0


class CostsMissing(Exception):
    """What is needed was not measured: run parts d, f, g and h."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor seconds, but for `hand_off`.

    Attributes:
        replica: of the replica that serves a group, for one hand-off.
        watcher: of each other replica, for one hand-off that it only sees.
        etcd: for one hand-off.
        agent: of all agents' work, for one hand-off on one node.
        beat_replica, beat_etcd: for one heartbeat of a session.
        hand_off: seconds of a hand-off in a system that does nothing else.
        waiter_bytes: of a replica's memory, for each session that waits.
        writes: revisions of one hand-off, the ticket's among them; several transactions may share one.
    """

    replica: float
    watcher: float
    etcd: float
    agent: float
    beat_replica: float
    beat_etcd: float
    hand_off: float
    waiter_bytes: float
    writes: float


def costs_from(runs: Sequence[Mapping[str, Any]]) -> Costs:
    """Out of one run, or of several on one machine that have measured different parts. Raises CostsMissing."""
    rows = [(row["part"], row["name"], row["figures"]) for run in runs for row in run["rows"]]
    groups = _last(rows, "f", "system")
    crowd = _last(rows, "g", "")
    replicas = [figures["replicas_cpu_ms"] for part, _, figures in rows if part == "h"]
    counts = [int(name.split()[0]) for part, name, _ in rows if part == "h"]
    if len(replicas) < 2:
        raise CostsMissing("part h with at least two numbers of replicas")
    waited = next(run for run in runs if any(row["part"] == "g" for row in run["rows"]))
    ttl = float(waited["settings"]["ttl"])
    beats = _BEATS_IN_TTL * _MINUTE / ttl  # of one session, a minute
    more = (replicas[-1] - replicas[0]) / (counts[-1] - counts[0])
    return Costs(
        replica=groups["replica_cpu_ms"] * _MS,
        watcher=min(max(more, 0.0), replicas[0]) * _MS,
        etcd=groups["etcd_cpu_ms"] * _MS,
        agent=groups["agents_cpu_ms"] * _MS,
        beat_replica=crowd["replica_cpu_ms_min"] * _MS / beats,
        beat_etcd=crowd["etcd_cpu_ms_min"] * _MS / beats,
        hand_off=_last(rows, "d", "hand-off")["p50_ms"] * _MS,
        waiter_bytes=crowd["replica_kb"] * 1024,
        writes=groups["revisions"],
    )


def _last(rows: Iterable[tuple[str, str, Mapping[str, float]]], part: str, begins: str) -> Mapping[str, float]:
    """The figures of the largest size. Of part d: of the row of exactly that name."""
    found = [
        figures
        for one, name, figures in rows
        if one == part and (name == begins if part == "d" else name.startswith(begins))
    ]
    if not found:
        raise CostsMissing(f"part {part}")
    return found[-1]
