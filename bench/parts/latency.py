# SPDX-License-Identifier: Apache-2.0
"""Parts a, b, c and d in one run on one etcd: each case once a round, and ratios across them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Collection, Iterator, Mapping

from bench.figures import Check, Found, Row, timed
from bench.measure import Summary, interleave, noise, summarise
from bench.parts import bare, etcdctl, floor, handoff
from bench.parts.names import (
    ALONE,
    ALONE_AGAIN,
    BARE,
    DELIVERY,
    ETCDCTL,
    ETCDCTL_START,
    FLOOR_OF,
    HAND_OFF,
    HAND_OFF_AGAIN,
)
from bench.settings import Settings
from bench.system import Bench

FLOOR_LIMIT = 1.3
"""What the system may cost beside the floor."""

_BARE_AIMS = {ALONE: 5.0, HAND_OFF: 12.0}
"""What it should cost at most beside a bare transaction."""


def run(bench: Bench, settings: Settings, parts: Collection[str]) -> Found:
    """Measure what ``parts`` names, and etcd itself, which all ratios need."""
    notes: tuple[str, ...] = ()
    with contextlib.ExitStack() as stack:
        cases = bare.cases(bench.store)
        if {"b", "d"} & set(parts):
            rig = handoff.Rig(bench, stack)
            cases += rig.cases()  # also for the floor alone: it replays what the system writes
            if "b" in parts:
                script = rig.script()
                notes = floor.told(script)
                cases += floor.cases(bench, stack, script)
        if "c" in parts:
            cases += etcdctl.EtcdctlLock(bench, stack).cases()
        rng = random.Random(settings.seed)
        taken = interleave(cases, settings.rounds, warm_up=settings.warm_up, rng=rng)
    found = {name: summarise(samples) for name, samples in taken.items()}
    return Found(tuple(_rows(found)), tuple(_checks(found)), notes)


def _rows(found: Mapping[str, Summary]) -> Iterator[Row]:
    for name, summary in found.items():
        ratios = {}
        if (below := found.get(FLOOR_OF.get(name, ""))) is not None:
            ratios["x_floor"] = summary.p50 / below.p50
        ratios["x_bare"] = summary.p50 / found[BARE].p50
        yield timed(_part(name), name, summary, **ratios)


def _part(name: str) -> str:
    if name in (BARE, DELIVERY):
        return "a"
    return "b" if name in FLOOR_OF.values() else "c" if name in (ETCDCTL, ETCDCTL_START) else "d"


def _checks(found: Mapping[str, Summary]) -> Iterator[Check]:
    for name in (ALONE, HAND_OFF):
        if name not in found:
            continue
        if (below := found.get(FLOOR_OF[name])) is not None:
            yield Check("d", f"{name}: beside the floor", found[name].p50 / below.p50, FLOOR_LIMIT)
            same = abs((found[name].revisions or 0) - (below.revisions or 0))
            yield Check("b", f"{name}: revisions more or less than the floor's", same, 0)
        yield Check("d", f"{name}: beside a bare transaction", found[name].p50 / found[BARE].p50, _BARE_AIMS[name])
    for name, again in ((ALONE, ALONE_AGAIN), (HAND_OFF, HAND_OFF_AGAIN)):
        if name in found:
            yield Check("d", f"{name}: two of the same are apart by", noise(found[name], found[again]), 0.1)
