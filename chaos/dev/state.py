# SPDX-License-Identifier: Apache-2.0
"""What a viewer of a run is shown: one picture at one moment, drawn from the processes themselves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from chaos.dev.lines import Asked, Granted, Line, Yielded
from chaos.dev.report import Evidence, Window, duty, percentile
from chaos.world import World
from timeslice_proto.v1 import coordinator_pb2, records_pb2

_RECENT = 10_000_000_000
"""Nanoseconds of the recent past that the current duty cycle is of."""


@dataclass(frozen=True, slots=True)
class JobState:
    """A job now. ``waited``: median seconds from asking for a turn to having it."""

    name: str
    doing: str
    turns: int
    waited: float


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything now.

    Attributes:
        turn: one sentence on the group's turn.
        switches: how often another job has come on.
        duty: of the devices in the last 10 s.
        processes: name and pid (None: it does not run) of every process.
    """

    turn: str
    switches: int
    duty: float
    jobs: tuple[JobState, ...]
    processes: tuple[tuple[str, int | None], ...]


def picture(world: World, group: coordinator_pb2.Group) -> Picture:
    """Look at everything."""
    devices = {node.name: world.events(node) for node in world.nodes if node.log.exists()}
    evidence = Evidence(devices, {name: job.lines for name, job in world.jobs.items()})
    now = time.monotonic_ns()
    begin = max(now - _RECENT, min((events[0].at for events in devices.values() if events), default=now - _RECENT))
    return Picture(
        turn=sentence(group),
        switches=switches(evidence),
        duty=duty(evidence, Window(begin, now)),
        jobs=tuple(_job(name, lines, now) for name, lines in evidence.jobs.items()),
        processes=tuple((name, world.pid(name)) for name in world.names),
    )


def switches(evidence: Evidence) -> int:
    """How often a turn went to another job than the one before."""
    order = [job for job, _ in evidence.turns()]
    return sum(first != second for first, second in pairwise(order))


def sentence(group: coordinator_pb2.Group) -> str:
    """What the group's turn says."""
    turn = group.turn
    match turn.phase:
        case records_pb2.PHASE_HELD:
            return f"{turn.holder.job} has the turn (token {turn.token})"
        case records_pb2.PHASE_PREPARING:
            return f"preparing for {turn.incoming.job or 'nobody'} (epoch {turn.epoch})"
        case records_pb2.PHASE_COMMITTING:
            return f"switching to {turn.incoming.job or 'nobody'} (epoch {turn.epoch})"
        case records_pb2.PHASE_RELEASING:
            return f"taking back epoch {turn.epoch}"
        case _:
            resident = turn.resident.job
            return f"idle; {resident} is on the devices" if resident else "idle; nobody is on the devices"


def _job(name: str, lines: Sequence[Line], now: int) -> JobState:
    turns = [line for line in lines if isinstance(line, Yielded)]
    waited = percentile([turn.granted - turn.asked for turn in turns], 0.5) / 1e9
    match lines[-1] if lines else None:
        case Asked(mono):
            doing = f"waits for {(now - mono) / 1e9:.1f} s"
        case Granted():
            doing = "trains on the devices"
        case Yielded():
            doing = "samples elsewhere"
        case _:
            doing = "rests"
    return JobState(name, doing, len(turns), waited)
