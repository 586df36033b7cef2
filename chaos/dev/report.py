# SPDX-License-Identifier: Apache-2.0
"""What a run has shown: pure functions over the devices' logs and the jobs' own lines. Times in ns unless said.

Who was able to run, and which bytes were lost, is told by the devices' logs alone. The jobs' lines add when each asked
and was told, which no device can know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from chaos.dev.lines import Granted, Line, Trouble, Yielded
from nodeagent.backends.sim import log
from nodeagent.backends.sim.log import Event, Interval

_COPIES = (("checkpoint-begin", "checkpoint-end"), ("restore-begin", "restore-end"))


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was seen. ``devices``: the log of each node; ``jobs``: the lines of each job."""

    devices: Mapping[str, Sequence[Event]]
    jobs: Mapping[str, Sequence[Line]]

    def turns(self, window: Window | None = None) -> list[tuple[str, Yielded]]:
        """The turns that ended well, in the order in which they began, each with its job."""
        found = [
            (job, line)
            for job, lines in self.jobs.items()
            for line in lines
            if isinstance(line, Yielded) and (window is None or window.begin <= line.mono < window.end)
        ]
        return sorted(found, key=lambda one: one[1].granted)


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time."""

    begin: int
    end: int

    @property
    def took(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class HandOff:
    """The devices go from one job to another that wants them.

    Attributes:
        begin: the last kernel of ``out`` has ended, and ``job`` has asked.
        able: ``job`` is able to run on all devices.
        told: ``job`` has been told so.
        copying: how long a copy was under way on some node meanwhile, ns.
    """

    out: str
    job: str
    begin: int
    able: int
    told: int
    copying: int

    @property
    def took(self) -> int:
        return self.able - self.begin

    @property
    def coordination(self) -> int:
        """All but the copies, until the client was told."""
        return self.told - self.begin - self.copying


@dataclass(frozen=True, slots=True)
class Split:
    """Where the time of a phase went: parts of 1.

    Attributes:
        busy: a kernel ran.
        swap: a hand-off was under way.
        held_idle: a job had the turn and ran no kernel.
        unheld_idle: nobody wanted the devices.
    """

    busy: float
    swap: float
    held_idle: float
    unheld_idle: float


def hand_offs(evidence: Evidence) -> list[HandOff]:
    """Every hand-off to a job that was restored for it, in order."""
    events = _merged(evidence)
    copies = _copies(events)
    grants = [line for lines in evidence.jobs.values() for line in lines if isinstance(line, Granted)]
    told_at = {grant.token: grant.mono for grant in grants}
    found = []
    for job, turn in evidence.turns():
        told = told_at[turn.token]
        runs = [one.at for one in events if one.name == "run" and one.job == job and turn.asked < one.at <= told]
        ends = [one for one in events if one.name == "touch-end" and one.job != job and one.at <= told]
        if not runs or not ends:
            continue  # it was on already, or had no process yet
        begin, able = max(ends[-1].at, turn.asked), max(runs)
        copying = _within(copies, Window(begin, able))
        found.append(HandOff(ends[-1].job, job, begin, able, told, copying))
    return found


def cycles(evidence: Evidence, phase: Window) -> Window | None:
    """Whole cycles of a phase: from the end of its first turn to the end of its last. None: there were not two."""
    ends = [turn.mono for _, turn in evidence.turns(phase)]
    return Window(min(ends), max(ends)) if len(ends) > 1 else None


def duty(evidence: Evidence, window: Window) -> float:
    """The part of the time in which a kernel ran: the mean of all devices."""
    parts = [
        log.duty_cycle(events, device, window.begin, window.end)
        for events in evidence.devices.values()
        for device in sorted({one.device for one in events})
    ]
    return fmean(parts) if parts else 0.0


def bound(solo: Iterable[float], busy: float, swap: float) -> float:
    """The duty cycle that no schedule of these jobs can exceed.

    Args:
        solo: the duty cycle of each job when it is alone.
        busy: mean seconds of a turn in which kernels run.
        swap: seconds of a hand-off.
    """
    return min(sum(solo), busy / (busy + swap), 1.0)


def split(evidence: Evidence, window: Window, swaps: Sequence[HandOff]) -> Split:
    """Where the time went."""
    held = [_span(turn.granted, turn.mono) for _, turn in evidence.turns()]
    swap = [_span(one.begin, one.told) for one in swaps]
    busy = duty(evidence, window)
    either = _within([*held, *swap], window) / window.took
    swapping = _within(swap, window) / window.took
    return Split(busy, swapping, max(either - swapping - busy, 0.0), 1 - either)


def waits(evidence: Evidence, job: str) -> list[int]:
    """How long each of the job's turns was waited for."""
    return [turn.granted - turn.asked for one, turn in evidence.turns() if one == job]


def busy_seconds(evidence: Evidence, window: Window) -> float:
    """Mean seconds of kernels of a turn."""
    turns = len(evidence.turns(window))  # begun by the end of the one before, which counts for the last
    return duty(evidence, window) * window.took / 1e9 / max(turns, 1)


def percentile(values: Sequence[int], part: float) -> int:
    """The smallest value that at least this part of all values does not exceed. 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0


def middle(values: Sequence[int]) -> float:
    """The median; 0 for none."""
    return median(values) if values else 0.0


def violations(evidence: Evidence, wanted: Sequence[str]) -> list[str]:
    """Every promise that was broken, a sentence each. ``wanted``: jobs of which each must have had a turn."""
    found: list[str] = []
    for node, events in evidence.devices.items():
        for one in log.overlaps(events):
            jobs, ms = f"{one.first.job} and {one.second.job}", (one.end - one.begin) / 1e6
            found.append(f"{jobs} were both able to run on {one.first.device} of {node} for {ms:.1f} ms.")
        found += [
            f"Bytes of {one.found.job} on {one.found.device} differ after its {one.found.name}."
            for one in log.lost_bytes(events)
        ]
    found += _kernels_at_once(evidence)
    found += _of_the_jobs(evidence, wanted)
    return found


def _kernels_at_once(evidence: Evidence) -> list[str]:
    """Kernels of two jobs at the same time, be it on two nodes."""
    spans = sorted(log.kernels(_merged(evidence)), key=lambda one: one.begin)
    last: dict[str, Interval] = {}
    found = []
    for span in spans:
        for job, before in last.items():
            if job != span.job and before.end > span.begin:
                found.append(f"Kernels of {job} on {before.device} and of {span.job} on {span.device} ran at once.")
        if span.job not in last or span.end > last[span.job].end:
            last[span.job] = span
    return found


def _of_the_jobs(evidence: Evidence, wanted: Sequence[str]) -> list[str]:
    found = []
    for job, lines in evidence.jobs.items():
        for line in lines:
            match line:
                case Trouble():
                    found.append(f"{job} met {line.reason}: {line.message}")
                case Yielded(intact=False):
                    found.append(f"{job} found its state changed in the turn with token {line.token}.")
                case _:
                    pass
    turns = evidence.turns()
    for (first, before), (second, after) in pairwise(turns):
        if after.token <= before.token:
            found.append(f"{second} got token {after.token} after {first} had got {before.token}.")
    had = {job for job, _ in turns}
    found += [f"{job} never had a turn." for job in wanted if job not in had]
    return found


def _merged(evidence: Evidence) -> list[Event]:
    return sorted((one for events in evidence.devices.values() for one in events), key=lambda one: one.at)


def _copies(events: Sequence[Event]) -> list[Interval]:
    found = []
    for begins, ends in _COPIES:
        open_at: dict[tuple[int, str], int] = {}
        for event in events:
            who = (event.pid, event.device)
            if event.name == begins:
                open_at[who] = event.at
            elif event.name == ends and who in open_at:
                found.append(_span(open_at.pop(who), event.at))
    return found


def _span(begin: int, end: int) -> Interval:
    return Interval("", 0, "", begin, end)


def _within(spans: Iterable[Interval], window: Window) -> int:
    """How much of the window at least one of the spans covers."""
    return log.busy(
        _span(max(one.begin, window.begin), min(one.end, window.end))
        for one in spans
        if one.end > window.begin and one.begin < window.end
    )
