# SPDX-License-Identifier: Apache-2.0
"""The demonstration: each job alone, then all together, then what the devices' logs say of it."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from chaos.dev.follow import GroupFollower
from chaos.dev.job import Rhythm
from chaos.dev.live import LiveView, PlainView, View
from chaos.dev.render import render
from chaos.dev.report import Evidence, Window, violations
from chaos.dev.state import picture
from chaos.jobs import JobProcess
from chaos.processes import ProcessTrouble
from chaos.world import World

_SOLO_PART = 0.4
_START_SECONDS = 5
_SLACK = 60.0
"""Seconds that a job may take to finish its last turn: a machine under load is slow, and no more than that."""

_FULL_SECONDS_A_JOB = 20.0
_SHORTEST = 0.2


@dataclass(frozen=True, slots=True)
class Options:
    """What is to be shown. ``seconds`` of turns; ``plant``: a bug of `chaos.planted`, or empty."""

    seconds: float = 40.0
    jobs: int = 2
    replicas: int = 3
    nodes: int = 2
    etcd: int = 1
    live: bool = True
    keep: Path | None = None
    plant: str = ""

    @property
    def rhythm(self) -> Rhythm:
        """Shorter steps in a shorter run, so that every run has some."""
        part = min(1.0, max(_SHORTEST, self.seconds / (_FULL_SECONDS_A_JOB * self.jobs)))
        return Rhythm(busy=part, idle=1.5 * part, kernel=0.1 * part)


@dataclass(frozen=True, slots=True)
class Result:
    """What was seen, and when each phase was. ``broken``: the promises that were, a sentence each."""

    evidence: Evidence
    solo: dict[str, Window]
    shared: Window
    broken: list[str]


def run(options: Options, console: Console) -> int:
    """Show it, and print the report. The exit status: 0 if all promises held, 1 if one did not.

    Raises ProcessTrouble, EtcdServerError or grpc.RpcError if the system does not start.
    """
    about = round(options.seconds) + _START_SECONDS
    console.print(f"This takes about {about} s and ends by itself; Ctrl-C ends it at once.")
    agent = ("-m", "chaos.planted", options.plant) if options.plant else ("-m", "nodeagent")
    world = World(replicas=options.replicas, nodes=options.nodes, etcd=options.etcd, agent=agent, folder=options.keep)
    with world:
        result = _show(options, world, console)
    render(result, options, console)
    if options.keep is not None:
        console.print(f"Logs and state of every process are in {options.keep}.")
    return 1 if result.broken else 0


def _show(options: Options, world: World, console: Console) -> Result:
    began = time.monotonic()

    def clock() -> str:
        return f"{time.monotonic() - began:5.1f} s"

    names = [f"job-{chr(ord('a') + index)}" for index in range(options.jobs)]
    jobs = [world.start_job(name, rhythm=options.rhythm, seed=seed) for seed, name in enumerate(names)]
    solo_seconds = options.seconds * _SOLO_PART / options.jobs
    shared_seconds = options.seconds * (1 - _SOLO_PART)
    solo: dict[str, Window] = {}
    shared = Window(0, 0)
    broken: list[str] = []
    with contextlib.ExitStack() as stack:
        follower = stack.enter_context(GroupFollower(world.endpoints, world.group))
        view: View
        if options.live and console.is_terminal:
            view = LiveView(console, lambda: picture(world, follower.latest), clock)
        else:
            view = PlainView(console, world, clock)
        stack.enter_context(view)
        try:
            for job in jobs:
                view.phase(f"{job.name} alone, for {solo_seconds:.0f} s")
                solo[job.name] = _phase([job], solo_seconds)
            view.phase(f"all {options.jobs} jobs share the devices, for {shared_seconds:.0f} s")
            shared = _phase(jobs, shared_seconds)
        except ProcessTrouble as error:
            broken.append(str(error))
    if not broken:
        for job in jobs:
            job.end(_SLACK)
    evidence = Evidence({node.name: world.events(node) for node in world.nodes}, {job.name: job.lines for job in jobs})
    return Result(evidence, solo, shared, [*broken, *violations(evidence, names)])


def _phase(jobs: list[JobProcess], seconds: float) -> Window:
    """Let these jobs run, and no others."""
    begin = time.monotonic_ns()
    for job in jobs:
        job.run(seconds)
    for job in jobs:
        job.wait_rested(seconds + _SLACK)
    return Window(begin, time.monotonic_ns())
