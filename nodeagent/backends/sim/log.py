# SPDX-License-Identifier: Apache-2.0
"""Reading the simulated device's log: who was able to run when, and whether any byte was lost.

Pure functions over the events. All times are nanoseconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the log.

    Attributes:
        name: attach, detach, run, stop, touch-begin, touch-end, checkpoint-begin, checkpoint-end,
        restore-begin or
            restore-end.
        at: CLOCK_MONOTONIC, ns.
        boot_at: CLOCK_BOOTTIME, ns.
        start: the process's start time, clock ticks after boot.
        checksum: of the bytes attached, saved or restored; else empty.
        why: of a stop: locked, freed or dead.
    """

    name: str
    at: int
    boot_at: int
    job: str
    pid: int
    start: int
    device: str
    bytes: int = 0
    checksum: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Interval:
    """``job`` was able to run (or did run a kernel) on ``device`` from ``begin`` to ``end``."""

    job: str
    pid: int
    device: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two jobs were able to run at once."""

    first: Interval
    second: Interval
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Switch:
    """From the end of the last kernel of ``out`` until ``job`` was able to run: ns."""

    out: str
    job: str
    begin: int
    end: int

    @property
    def took(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class LostBytes:
    """A process's bytes were not restored as they were saved, or not saved as they were."""

    saved: Event
    found: Event


def read(path: Path) -> list[Event]:
    """The events of a log, oldest first. A last line that is being written is left out."""
    text = path.read_text(encoding="utf-8")
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [_event(json.loads(line)) for line in lines]


def _event(line: dict[str, str | int]) -> Event:
    return Event(
        name=str(line["event"]),
        at=int(line["mono"]),
        boot_at=int(line["boot"]),
        job=str(line["job"]),
        pid=int(line["pid"]),
        start=int(line["start"]),
        device=str(line["device"]),
        bytes=int(line.get("bytes", 0)),
        checksum=str(line.get("checksum", "")),
        why=str(line.get("why", "")),
    )


def able_to_run(events: Sequence[Event]) -> list[Interval]:
    """When each process was able to run on each device. What is open at the end of the log ends with its last
    event."""
    return list(_intervals(events, "run", "stop"))


def kernels(events: Sequence[Event]) -> list[Interval]:
    """When a kernel ran. One that its process's end cut short ends there."""
    return list(_intervals(events, "touch-begin", "touch-end", "detach"))


def _intervals(events: Sequence[Event], begins: str, *ends: str) -> Iterator[Interval]:
    open_at: dict[tuple[int, int, str], Event] = {}
    for event in events:
        who = (event.pid, event.start, event.device)
        if event.name == begins:
            open_at.setdefault(who, event)  # a second beginning does not take back the first
        elif event.name in ends and who in open_at:
            first = open_at.pop(who)
            yield Interval(first.job, first.pid, first.device, first.at, event.at)
    for first in open_at.values():
        yield Interval(first.job, first.pid, first.device, first.at, events[-1].at)


def overlaps(events: Sequence[Event], devices: Collection[str] | None = None) -> list[Overlap]:
    """Every time that two jobs were able to run at once on the devices of one group (all devices, if not
    given)."""
    spans = sorted(
        (one for one in able_to_run(events) if devices is None or one.device in devices),
        key=lambda one: one.begin,
    )
    found: list[Overlap] = []
    active: list[Interval] = []
    for span in spans:
        active = [one for one in active if one.end > span.begin]
        found.extend(Overlap(one, span, span.begin, min(one.end, span.end)) for one in active if one.job != span.job)
        active.append(span)
    return found


def busy(spans: Iterable[Interval]) -> int:
    """The time, in ns, in which at least one of the intervals lasts."""
    total, until = 0, 0
    for span in sorted(spans, key=lambda one: one.begin):
        total += max(0, span.end - max(span.begin, until))
        until = max(until, span.end)
    return total


def duty_cycle(events: Sequence[Event], device: str, begin: int, end: int) -> float:
    """The part of the time from ``begin`` to ``end`` in which a kernel ran on ``device``."""
    spans = [
        Interval(one.job, one.pid, one.device, max(one.begin, begin), min(one.end, end))
        for one in kernels(events)
        if one.device == device and one.end > begin and one.begin < end
    ]
    return busy(spans) / (end - begin)


def switches(events: Sequence[Event], devices: Collection[str] | None = None) -> list[Switch]:
    """Every time that another job than before became able to run: from the last kernel's end of the one
    before.

    A job that ran no kernel is timed from when it was last able to run.
    """
    found: list[Switch] = []
    job, last = "", 0
    for event in events:
        if devices is not None and event.device not in devices:
            continue
        if event.name == "run" and event.job != job:
            if job:
                found.append(Switch(job, event.job, last, event.at))
            job, last = event.job, event.at
        elif event.name == "touch-end" and event.job == job:
            last = event.at
    return found


def lost_bytes(events: Sequence[Event]) -> list[LostBytes]:
    """Every save or restore whose bytes are not those that it began with."""
    found: list[LostBytes] = []
    before: dict[tuple[int, int, str], Event] = {}
    chain = ("checkpoint-begin", "checkpoint-end", "restore-begin", "restore-end")
    for event in events:
        who = (event.pid, event.start, event.device)
        if event.name in chain:
            earlier = before.get(who)
            if earlier is not None and event.name != chain[0] and earlier.checksum != event.checksum:
                found.append(LostBytes(earlier, event))
            before[who] = event
        elif event.name == "attach":
            before.pop(who, None)
    return found
