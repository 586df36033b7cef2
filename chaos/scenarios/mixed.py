# SPDX-License-Identifier: Apache-2.0
"""All faults at random, alone and two at once, while jobs take turns, waiters give up and sessions come and go.

After each fault every job has to get on again, also those that were killed themselves and came back.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from chaos.apart import why_not
from chaos.checkers import Violation
from chaos.crowd import PASSER_BY, Crowd
from chaos.dev.job import Rhythm
from chaos.dev.lines import Line, Yielded
from chaos.faults import Fault, Harm, NotPossible, compaction, network, points, refusals, signals
from chaos.processes import ProcessTrouble
from chaos.quitter import JOB as QUITTER
from chaos.scenarios.contention import rest_all, start_all
from chaos.scenarios.scenario import NS, WITHIN, Figures, Run, Scenario, judged, observer, spread
from chaos.scenarios.switches import switches
from chaos.world import Shape, World

FAULTS: tuple[Fault, ...] = (
    *signals.FAULTS,
    *network.FAULTS,
    *compaction.FAULTS,
    *refusals.FAULTS,
    *points.FAULTS,
)

_JOBS = ("job-a", "job-b", "job-c")
_RHYTHM = Rhythm(busy=0.15, idle=0.05, kernel=0.05)
_SHAPE = Shape(bandwidth=20e9, latency=0.02)
_TTL = 15.0
"""Seconds: no fault lasts half of it, so that no session that nobody harmed can end."""

_TWO_AT_ONCE = 0.3
_QUIET = 0.5
"""Seconds between faults, at most."""


@dataclass(frozen=True, slots=True)
class Blow:
    """One fault, or two at once: their names, and how long after the last was undone each job had a turn again (s)."""

    names: tuple[str, ...]
    recovered: float


class Mix:
    """One world, and faults in it until there were enough, or the time is over."""

    def __init__(self, run: Run, world: World) -> None:
        self._run, self._world = run, world
        self._random = Random(run.seed)
        self._bag: list[Fault] = []
        self.blows: list[Blow] = []
        self.excused: set[str] = {QUITTER, PASSER_BY}
        self.impossible: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return sum(len(one.names) for one in self.blows)

    def go(self) -> None:
        """Raises ProcessTrouble when a job does not get on again, or something does not start any more."""
        while self.count < self._run.count and not self._run.over:
            time.sleep(self._random.random() * _QUIET)
            chosen = [self._next()]
            if self._random.random() < _TWO_AT_ONCE:
                second = self._next()
                chosen += [second] if _go_together(chosen[0], second) else []
            blow = self._blow(chosen)
            if blow is not None:
                self.blows.append(blow)
                self._run.say(f"{', '.join(blow.names)}: every job had a turn again after {blow.recovered:.2f} s")

    def _next(self) -> Fault:
        """Each fault once in a random order, then again: none is left to chance."""
        if not self._bag:
            self._bag = self._random.sample(FAULTS, len(FAULTS))
        return self._bag.pop()

    def _blow(self, faults: Sequence[Fault]) -> Blow | None:
        """Do them, each for a random time; wait until every job has had a turn since."""
        until: list[tuple[float, Fault, Harm]] = []
        try:
            for fault in faults:
                try:
                    harm = fault.begin(self._world, self._random)
                except NotPossible as why:
                    self.impossible[f"{fault.name}: {why}"] += 1
                    continue
                self.excused.update(harm.excused)
                until.append((time.monotonic() + self._random.random() * fault.lasts, fault, harm))
        finally:
            for end, _, harm in sorted(until, key=lambda one: one[0]):
                time.sleep(max(end - time.monotonic(), 0.0))
                harm.undo()
        if not until:
            return None
        healed = time.monotonic_ns()
        what = f"have a turn after {' and '.join(harm.what for _, _, harm in until)}"
        for job in self._world.jobs.values():
            job.wait_for(lambda lines: any(_after(line, healed) for line in lines), WITHIN, what)
        return Blow(tuple(fault.name for _, fault, _ in until), (time.monotonic_ns() - healed) / NS)


def _go_together(one: Fault, other: Fault) -> bool:
    return one.party is not other.party and not (one.alone or other.alone)


def _after(line: Line, mono: int) -> bool:
    return isinstance(line, Yielded) and line.asked > mono


def _mixed(run: Run) -> tuple[list[str], list[Violation]]:
    stuck: list[Violation] = []
    apart = () if (no_namespace := why_not()) else (2,)
    if no_namespace:
        run.say(f"the fault net-unplugged is not possible here: {no_namespace}")
    with (
        tempfile.TemporaryDirectory(prefix="timeslice-points-") as folder,
        World(replicas=3, nodes=2, etcd=3, shape=_SHAPE, proxied=True, apart=apart, failpoints=Path(folder)) as world,
        observer(world) as eyes,
    ):
        start_all(world, dict.fromkeys(_JOBS, ()), run.seed, rhythm=_RHYTHM, ttl=_TTL)
        for job in world.jobs.values():
            job.wait_turns(1, WITHIN)
        mix = Mix(run, world)
        with Crowd(world, eyes, run.seed) as crowd:
            try:
                mix.go()
            except (ProcessTrouble, TimeoutError) as error:
                stuck.append(Violation("no group is stuck", str(error)))
        if not stuck:
            stuck += _come_to_rest(world)
        facts, violations = judged(world, eyes, excused=tuple(mix.excused))
        return [*_facts(run, world, mix, crowd), *facts], [*stuck, *violations]


def _come_to_rest(world: World) -> list[Violation]:
    try:
        rest_all(world)
    except (ProcessTrouble, TimeoutError) as error:
        return [Violation("no group is stuck", str(error))]
    return []


def _facts(run: Run, world: World, mix: Mix, crowd: Crowd) -> list[str]:
    names = Counter(name for one in mix.blows for name in one.names)
    recovered = [one.recovered for one in mix.blows]
    found = switches(world.history())
    run.note(Figures(len(found), mix.count, names, tuple(recovered)))
    never = [one.name for one in FAULTS if one.name not in names]
    return [
        f"faults: {mix.count}, {sum(len(one.names) > 1 for one in mix.blows)} times two at once",
        *(f"  {count} times {name}" for name, count in sorted(names.items())),
        *([f"  not once: {', '.join(never)}"] if never else []),
        *(f"  not possible {count} times: {why}" for why, count in mix.impossible.items()),
        f"beside it: {', '.join(f'{count} {what}' for what, count in sorted(crowd.done.items()))}",
        f"switches: {len(found)}; every job had a turn again after a fault: {spread(recovered)}",
    ]


MIXED = Scenario(
    "mixed",
    "Whatever is done to whom, alone or two at once: no promise is broken, no state lost, no group stuck.",
    30,
    _mixed,
)
