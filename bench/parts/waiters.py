# SPDX-License-Identifier: Apache-2.0
"""Part g: many waiters on one group. What a hand-off costs among them, and what it costs that they wait."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.figures import MS, Check, Found, Row
from bench.fleet import Fleet, Load
from bench.load import Window
from bench.measure import Sample, Summary, noise, summarise
from bench.settings import Settings
from bench.system import Bench

_HOLD = 0.25
"""Seconds of each turn: the hand-offs follow one another, but not without a pause."""

_LIMIT = 1.5
_BRIEFLY = 0.5
_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class _Crowd:
    """So many waiters: what they cost while nothing moves, and the hand-offs among them."""

    count: int
    quiet: Window
    replica_cpu: float
    etcd_cpu: float
    resident: int
    resumed: int
    hand_offs: Summary


def run(bench: Bench, settings: Settings) -> Found:
    """From few to many, each on a group of its own, and the fewest once more before the most: for the noise."""
    counts = sorted(settings.waiters)
    crowds: list[_Crowd] = []
    again: _Crowd | None = None
    with contextlib.ExitStack() as stack:
        fleet = Fleet(bench, stack, "g", devices=len(counts) + 1)
        for number, count in enumerate(counts):
            if number == len(counts) - 1:
                again = _crowd(bench, fleet, "again", len(counts), counts[0], settings, _BRIEFLY)
            crowds.append(_crowd(bench, fleet, f"w{count}", number, count, settings, settings.quiet_seconds))
    assert again is not None
    note = f"sessions' time to live {settings.ttl:g} s, three beats in it; a turn lasts {_HOLD * MS:g} ms"
    return Found(tuple(_rows(crowds)), tuple(_checks(crowds, again)), (note,))


def _crowd(
    bench: Bench, fleet: Fleet, group: str, number: int, count: int, settings: Settings, quiet_seconds: float
) -> _Crowd:
    fleet.put_groups({group: [("n0", number)]})
    empty = fleet.usage()
    with contextlib.ExitStack() as stack:
        jobs, channels, ttl = count + 1, settings.channels, settings.ttl
        load = Load(bench, stack, group, fleet.endpoints, [group], jobs=jobs, channels=channels, ttl=ttl)
        load.open()
        load.window(1.0)  # the last positions are told
        before = fleet.usage()
        quiet = load.window(quiet_seconds)
        after = fleet.usage()
        used = after.since(before)
        load.go(_HOLD)
        load.window(2 * _HOLD)
        taken = load.window(settings.crowd_seconds)
        load.rest()
        minutes = (after.at - before.at) / _MINUTE
        return _Crowd(
            count=count,
            quiet=quiet,
            replica_cpu=used["replica0"] / count / minutes,
            etcd_cpu=used["etcd"] / count / minutes,
            resident=(before.resident["replica0"] - empty.resident["replica0"]) // count,
            resumed=quiet.resumed + taken.resumed,
            hand_offs=summarise([Sample(one) for one in taken.latencies]),
        )


def _rows(crowds: Sequence[_Crowd]) -> Iterator[Row]:
    fewest = crowds[0].hand_offs.p50
    for crowd in crowds:
        a_minute = _MINUTE / crowd.quiet.seconds / crowd.count
        quiet = crowd.quiet
        yield Row(
            "g",
            f"{crowd.count} waiters",
            {
                "x_fewest": crowd.hand_offs.p50 / fewest,
                "p50_ms": crowd.hand_offs.p50 * MS,
                "p99_ms": crowd.hand_offs.p99 * MS,
                "count": crowd.hand_offs.count,
                "resumed": crowd.resumed,
                "messages_min": (quiet.sent + quiet.received) * a_minute,
                "bytes_min": (quiet.sent_bytes + quiet.received_bytes) * a_minute,
                "replica_cpu_ms_min": crowd.replica_cpu * MS,
                "etcd_cpu_ms_min": crowd.etcd_cpu * MS,
                "replica_kb": crowd.resident / 1024,
            },
        )


def _checks(crowds: Sequence[_Crowd], again: _Crowd) -> Iterator[Check]:
    few, many = crowds[0], crowds[-1]
    ratio = many.hand_offs.p50 / few.hand_offs.p50
    yield Check("g", f"{many.count} waiters beside {few.count}: hand-off", ratio, _LIMIT)
    yield Check("g", f"{few.count} waiters twice are apart by", noise(few.hand_offs, again.hand_offs), 0.2)
