# SPDX-License-Identifier: Apache-2.0
"""Part k: a switch that takes a minute in one group, and what the other groups feel of it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from bench.figures import MS, Check, Found, Row
from bench.fleet import Fleet, Load
from bench.load import names
from bench.measure import percentile
from bench.settings import Settings
from bench.system import Bench, Contender, Pair

_OTHERS, _SLOW = 8, "slow"
_QUIET = 24.0
"""Seconds of a quiet window at most: the two of a round are as long as what is seen of a switch of a minute."""

_LEAST = 0.05
"""A difference that counts as none: two windows of the same are hardly ever nearer."""


def run(bench: Bench, settings: Settings) -> Found:
    """Windows of the others' hand-offs by turns: quiet, while the switch lasts, quiet, and so on.

    The quiet windows are split in two, and which of a round's two is whose changes from round to round, so that a
    machine that drifts counts in neither. How far apart the two are is the noise that a difference must exceed.
    """
    seconds = settings.slow_seconds
    with contextlib.ExitStack() as stack:
        fleet = Fleet(bench, stack, "k", nodes=2, processes=2, devices=_OTHERS + 1)
        groups = names(0, _OTHERS)
        fleet.put_groups({group: [("n0", n), ("n1", n)] for n, group in enumerate(groups)})
        fleet.put_groups({_SLOW: [("n0", _OTHERS), ("n1", _OTHERS)]})
        load = Load(bench, stack, "k", fleet.endpoints, groups)
        load.open()
        jobs = [
            Contender(bench, stack, "bench.job", fleet.endpoints[0], _SLOW, f"{_SLOW}-{side}", within=2 * seconds + 60)
            for side in ("a", "b")
        ]
        pair = Pair(bench.store, *jobs)
        for cost in (0.0, seconds):  # the second is the device's from now on
            fleet.attach(_SLOW, pair.holder, _OTHERS, cost, fleet.nodes)
            if cost == 0.0:
                pair.hand_off()
        load.go()
        load.window(1.0)
        quiet: list[float] = []
        again: list[float] = []
        beside: list[float] = []
        length = min(seconds * 0.8, _QUIET)
        for _ in range(settings.slow_rounds):
            quiet, again = again, quiet
            quiet += load.window(length).latencies
            pair.begin_hand_off()
            beside += load.window(seconds * 0.8).latencies
            pair.end_hand_off()
            again += load.window(length).latencies
    return _found(quiet, again, beside, seconds)


def _found(quiet: Sequence[float], again: Sequence[float], beside: Sequence[float], seconds: float) -> Found:
    def row(name: str, latencies: Sequence[float]) -> Row:
        figures = {"p50_ms": percentile(latencies, 0.5) * MS, "p99_ms": percentile(latencies, 0.99) * MS}
        return Row("k", name, {**figures, "count": len(latencies)})

    tails = [percentile(one, 0.99) for one in (quiet, again)]
    apart = max(tails) / min(tails) - 1
    with_it = percentile(beside, 0.99) / percentile([*quiet, *again], 0.99) - 1
    rows = (
        row("others' hand-offs, quiet", quiet),
        row("others' hand-offs, quiet (again)", again),
        row(f"others' hand-offs, a switch of {seconds:g} s beside them", beside),
    )
    what = f"a switch of {seconds:g} s: others' p99 higher by, where two of the same are apart by {apart:.2f}"
    return Found(rows, (Check("k", what, with_it, max(apart, _LEAST)),))
