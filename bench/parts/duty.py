# SPDX-License-Identifier: Apache-2.0
"""Part j: how much of the devices' time jobs of reinforcement learning get, and where the rest of it goes.

Each job samples elsewhere, then trains on the devices, again and again: in fixed phases, or in such as vary by up to
half. A switch costs a stated time. All groups run at once, each on a device of its own; they hardly need the processor.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench import ideal
from bench.figures import Check, Found, Row
from bench.settings import Settings
from bench.system import Bench, System
from chaos.dev.job import Rhythm
from chaos.dev.lines import Granted
from chaos.jobs import JobProcess
from nodeagent.backends.sim import log
from nodeagent.backends.sim.log import Event, Interval

_SPREAD, _KERNELS = 0.5, 20
"""Of random phases; and how many kernels a turn has about."""

_LIMIT = 0.97
_WITHIN, _LONG = 120.0, 600.0


@dataclass(frozen=True, slots=True)
class Shape:
    """One group: so many jobs, each of which needs the devices for ``share`` of its time when it is alone."""

    jobs: int
    share: float
    varied: bool

    @property
    def name(self) -> str:
        who = "1 job" if self.jobs == 1 else f"{self.jobs} jobs"
        return f"{who}, busy share {self.share:g}, {'random' if self.varied else 'fixed'} phases"

    def rhythm(self, busy: float) -> Rhythm:
        """The phases, a turn of ``busy`` seconds."""
        spread = _SPREAD if self.varied else 0.0
        return Rhythm(busy, busy * (1 / self.share - 1), spread, busy / _KERNELS)


@dataclass(frozen=True, slots=True)
class Split:
    """Parts of the time; together 1.

    Attributes:
        busy: a kernel runs.
        held: a job has the turn and runs none.
        switch: nobody has the turn, and a job's state is on its way out or in.
        unheld: neither.
    """

    busy: float
    held: float
    switch: float
    unheld: float


def run(bench: Bench, settings: Settings) -> Found:
    """All shapes at once; ``solo`` is what one job of the same phases gets alone, measured beside them."""
    shapes = [Shape(jobs, share, varied) for jobs, share in settings.duty for varied in (False, True)]
    alone = [Shape(1, share, False) for share in sorted({share for _, share in settings.duty})]
    every = [*alone, *shapes]
    with contextlib.ExitStack() as stack:
        system = System(bench, stack, "j", devices=len(every), latency=settings.duty_switch / 2)
        jobs = [_jobs(bench, stack, system, number, shape, settings) for number, shape in enumerate(every)]
        for group in jobs:
            for job in group:
                job.run()
        for group in jobs:
            for job in group:
                job.wait_turns(2, _WITHIN)  # its worker has been started in the first
        for group in jobs[:1]:
            group[0].wait_turns(len(group[0].turns) + round(settings.duty_seconds / _period(alone[0], settings)), _LONG)
        (node,) = system.nodes
        events = log.read(system.event_log(node))
        found = [_measure(events, node.devices[number], group) for number, group in enumerate(jobs)]
    solo = {shape.share: split.busy for shape, split in zip(alone, found, strict=False)}
    rows = [_row(shape, split, solo[shape.share], settings) for shape, split in zip(every, found, strict=True)]
    return Found(tuple(rows), tuple(_checks(rows)), (f"a switch costs {settings.duty_switch:g} s",))


def _period(shape: Shape, settings: Settings) -> float:
    return settings.duty_busy / shape.share


def _jobs(
    bench: Bench, stack: contextlib.ExitStack, system: System, number: int, shape: Shape, settings: Settings
) -> list[JobProcess]:
    group, (node,) = f"j{number}", system.nodes
    system.put_group(group, (node, number))
    rhythm = shape.rhythm(settings.duty_busy)
    found = []
    for index in range(shape.jobs):
        name = f"{group}-{index}"
        command = ["-m", "chaos.dev.job", "--group", group, "--seed", str(_seed(settings, index))]
        command += ["--place", f"{node.socket},{node.devices[number]}"]
        for option in ("busy", "idle", "spread", "kernel", "bytes"):
            command += [f"--{option}", str(getattr(rhythm, option))]
        environment = {
            "TIMESLICE_ENDPOINTS": system.endpoints[0],
            "TIMESLICE_JOB_ID": name,
            "TIMESLICE_GROUP": group,
            "TIMESLICE_TTL": "60",
        }
        job = JobProcess(name, command, bench.folder / f"{name}.log", environment)
        job.child.start()
        stack.callback(job.child.kill)
        found.append(job)
    for job in found:
        job.child.wait_ready(_WITHIN)
    return found


def _seed(settings: Settings, index: int) -> int:
    return settings.seed * 1000 + index


# ------------------------------------------------------------------------------------------------------- what was seen


def _measure(events: Sequence[Event], device: str, jobs: Sequence[JobProcess]) -> Split:
    """From when each job has had its second turn, to the last that ended."""
    ends = sorted(line.mono for job in jobs for line in job.turns)
    begin, end = max(job.turns[1].mono for job in jobs), ends[-1]
    ours = [event for event in events if event.device == device]
    kernels = [(one.begin, one.end) for one in log.kernels(ours)]
    turns = [(line.granted, line.yielding) for job in jobs for line in job.turns]
    open_ = [line.mono for job in jobs for line in job.lines[-1:] if isinstance(line, Granted)]
    turns += [(mono, end) for mono in open_]
    return split(kernels, turns, _off(log.able_to_run(ours)), begin, end)


def _off(able: Sequence[Interval]) -> list[tuple[int, int]]:
    """When one job had been taken off and no other could run yet."""
    spans = sorted((one.begin, one.end) for one in able)
    return [(before[1], after[0]) for before, after in pairwise(spans) if after[0] > before[1]]


_Spans = Sequence[tuple[int, int]]


def split(kernels: _Spans, turns: _Spans, switches: _Spans, begin: int, end: int) -> Split:
    """Where the time went; what is several things at once counts as the first of them."""
    busy = _covered(kernels, begin, end)
    held = _covered([*kernels, *turns], begin, end)
    all_ = _covered([*kernels, *turns, *switches], begin, end)
    whole = end - begin
    return Split(busy / whole, (held - busy) / whole, (all_ - held) / whole, (whole - all_) / whole)


def _covered(spans: _Spans, begin: int, end: int) -> int:
    """How much of the time from ``begin`` to ``end`` lies in at least one of the spans."""
    total, until = 0, begin
    for first, last in sorted(spans):
        low, high = max(first, until), min(last, end)
        if high > low:
            total, until = total + high - low, high
    return total


# --------------------------------------------------------------------------------------------------- what it is beside


def _phases(shape: Shape, settings: Settings, index: int) -> Iterator[tuple[float, float]]:
    """What that job draws."""
    rhythm, rng = shape.rhythm(settings.duty_busy), random.Random(_seed(settings, index))
    while True:
        idle, busy = rhythm.vary(rhythm.idle, rng), rhythm.vary(rhythm.busy, rng)
        yield idle, max(1, round(busy / rhythm.kernel)) * rhythm.kernel


def bound(shape: Shape, settings: Settings) -> float:
    """What the jobs would get if everything but their phases and the switches took no time."""
    begin = 2 * _period(shape, settings) * shape.jobs
    end = begin + 50 * settings.duty_seconds
    return ideal.duty([_phases(shape, settings, n) for n in range(shape.jobs)], settings.duty_switch, begin, end)


def _row(shape: Shape, found: Split, solo: float, settings: Settings) -> Row:
    limit = bound(shape, settings)
    figures = {"of_bound": found.busy / limit, "bound": limit, "duty": found.busy, "solo": solo}
    figures |= {"held_idle": found.held, "switch": found.switch, "unheld_idle": found.unheld}
    return Row("j", shape.name, figures)


def _checks(rows: Sequence[Row]) -> Iterator[Check]:
    for row in rows:
        if "fixed" in row.name and not row.name.startswith("1 job"):
            yield Check("j", f"{row.name}: duty beside its bound", row.figures["of_bound"], _LIMIT, at_least=True)
