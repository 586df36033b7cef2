# SPDX-License-Identifier: Apache-2.0
"""Jobs that contend for one group without a pause: the traffic of the scenarios that measure what a fault costs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from chaos.dev.job import Rhythm
from chaos.dev.lines import Yielded
from chaos.observer import Observer, Seen
from chaos.scenarios.handoffs import HandOff, hand_offs
from chaos.scenarios.scenario import WITHIN, observer
from chaos.world import Shape, World
from ledger.records import Phase

JOBS = ("job-a", "job-b", "job-c")
RHYTHM = Rhythm(busy=0.1, idle=0.02, kernel=0.05)
_SHAPE = Shape(bandwidth=20e9, latency=0.02)


@contextlib.contextmanager
def contending(
    seed: int, *, replicas: int = 3, nodes: int = 2, etcd: int = 1, ttl: float = 10.0
) -> Iterator[tuple[World, Observer]]:
    """A world whose jobs have each had a turn, and go on.

    Raises ProcessTrouble, EtcdServerError or grpc.RpcError if it does not come to that.
    """
    with World(replicas=replicas, nodes=nodes, etcd=etcd, shape=_SHAPE) as world, observer(world) as eyes:
        start_all(world, dict.fromkeys(JOBS, ()), seed, rhythm=RHYTHM, ttl=ttl)
        wait_turns(world, 1)
        yield world, eyes


def start_all(world: World, jobs: Mapping[str, Sequence[str]], seed: int, *, rhythm: Rhythm, ttl: float = 10.0) -> None:
    """Start these jobs side by side, and let them run once all are there.

    ``jobs``: by name, the groups that each takes at once; none: the world's own.
    """
    with ThreadPoolExecutor(len(jobs)) as pool:
        starting = [
            pool.submit(world.start_job, name, rhythm=rhythm, seed=seed * 10 + index, ttl=ttl, groups=groups)
            for index, (name, groups) in enumerate(jobs.items())
        ]
        for one in starting:
            one.result()
    for job in world.jobs.values():
        job.run()


def wait_phase(eyes: Observer, group: str, phase: Phase) -> None:
    """Return as soon as the group's turn is seen to have come to this phase. Raises TimeoutError if it does not."""
    seen = eyes.seen

    def is_there(one: Seen) -> bool:
        return one.place.group == group and one.turn is not None and one.turn.phase is phase

    eyes.wait_for(is_there, WITHIN, after=seen[-1].revision if seen else 0)


def wait_turns(world: World, more: int) -> None:
    """Wait until each job has had so many turns more. Raises ProcessTrouble if one does not."""
    counts = {job: len(job.turns) for job in world.jobs.values()}
    for job, count in counts.items():
        job.wait_turns(count + more, WITHIN)


def wait_served(world: World, since: int) -> None:
    """Wait until each job has had a turn that was granted after that (ns). Raises ProcessTrouble if one does not."""
    for job in world.jobs.values():
        job.wait_for(
            lambda lines: any(isinstance(line, Yielded) and line.granted > since for line in lines),
            WITHIN,
            "have another turn",
        )


def move_all(world: World) -> None:
    """Let each job go on with another session, at any replica: else all stay away from one that was hit."""
    for job in world.jobs.values():
        job.move()
        job.run()


def rest_all(world: World) -> None:
    """Let each finish its turn. Raises ProcessTrouble if one does not."""
    for job in world.jobs.values():
        job.rest()
    for job in world.jobs.values():
        job.wait_rested(WITHIN)


def their_hand_offs(world: World) -> list[HandOff]:
    """All so far."""
    return hand_offs({name: job.lines for name, job in world.jobs.items()})
