# SPDX-License-Identifier: Apache-2.0
"""A holder that is harmed, step by step: it has the turn, another waits, the turn is taken from it, the other is on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from chaos.dev.job import Rhythm
from chaos.jobs import JobProcess
from chaos.observer import Observer, Seen
from chaos.scenarios.scenario import NS, WITHIN
from chaos.world import World
from ledger.keys import Kind
from ledger.records import Turn


@dataclass(frozen=True, slots=True)
class Loss:
    """A turn that was taken away: from the fault at ``at`` to each step. ns of CLOCK_MONOTONIC."""

    at: int
    job: str
    token: int
    reclaimed: int
    granted: int

    @property
    def waited(self) -> float:
        """Seconds until the next job had its grant."""
        return (self.granted - self.at) / NS


def lose(world: World, eyes: Observer, job: str, harm: Callable[[], None]) -> Loss:
    """Harm the holder, and wait until the next job has a grant. Raises TimeoutError if that does not come."""
    turn = eyes.turn(world.group)
    assert turn is not None and holder_of(turn) == job, f"{job} does not hold the turn any more"
    after = eyes.seen[-1].revision
    at = time.monotonic_ns()
    harm()

    def reclaimed(one: Seen) -> bool:
        return one.turn is not None and holder_of(one.turn) != job

    def granted(one: Seen) -> bool:
        return one.place.kind is Kind.TICKET and one.ticket is not None and one.ticket.token > turn.token

    end = eyes.wait_for(reclaimed, WITHIN, after=after)
    grant = eyes.wait_for(granted, WITHIN, after=end.revision)
    return Loss(at, job, turn.token, end.mono, grant.mono)


def hold(world: World, eyes: Observer, name: str, rhythm: Rhythm, seed: int, ttl: float) -> JobProcess:
    """Start a job and let it get the turn; it runs kernels until it is harmed. ``ttl`` in seconds."""
    job = world.start_job(name, rhythm=rhythm, seed=seed, ttl=ttl)
    job.run()
    eyes.wait_for(lambda one: one.turn is not None and holder_of(one.turn) == name, WITHIN)
    job.wait_granted(1, WITHIN)
    return job


def holder_of(turn: Turn | None) -> str:
    """The holder's job; empty: nobody."""
    return turn.holder.job if turn and turn.holder else ""


def queue_up(world: World, eyes: Observer, follower: JobProcess) -> None:
    """Let the follower want the turn, and wait until it has its place."""
    after = eyes.seen[-1].revision
    follower.run()
    eyes.wait_for(lambda one: one.place.name == follower.name and one.ticket is not None, WITHIN, after=after)
