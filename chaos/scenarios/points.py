# SPDX-License-Identifier: Apache-2.0
"""A process is killed at every failpoint, one after the other, in a system at work; each time it has to go on.

A point is armed by a file, in all processes at once: the first that gets there dies. Who was started by the world is
started again; a helper's parent sees to that itself.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from chaos import background
from chaos.checkers import Violation
from chaos.crowd import PASSER_BY, Crowd
from chaos.dev.job import Rhythm
from chaos.dev.lines import Line, Yielded
from chaos.failpoints.arming import Arming
from chaos.failpoints.registry import POINTS, Point, Traffic
from chaos.failpoints.victim import restart_victim
from chaos.faults.signals import any_agent
from chaos.processes import ProcessTrouble
from chaos.quitter import JOB as QUITTER
from chaos.scenarios.contention import rest_all
from chaos.scenarios.scenario import NS, WITHIN, Figures, Run, Scenario, judged, observer, spread
from chaos.scenarios.switches import switches
from chaos.world import World
from ledger import failpoint
from ledger.etcd import EtcdClient
from ledger.keys import Keys

_JOBS = ("job-a", "job-b")
_RHYTHM = Rhythm(busy=0.1, idle=0.05, kernel=0.05)
_CALL_SECONDS = 10.0
_HIT_SECONDS = 30.0
_MOVE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Passed:
    """A point at which a process was killed.

    Attributes:
        victim: its name; of a helper, whose it was is not known.
        reached: seconds from arming to the kill.
        recovered: seconds from the kill until every job had had a turn.
    """

    point: Point
    victim: str
    reached: float
    recovered: float

    def __str__(self) -> str:
        return (
            f"{self.point.name:32}{self.victim:16}hit after {self.reached:5.2f} s, "
            f"every job had a turn again after {self.recovered:5.2f} s"
        )


class Walk:
    """One world and the points that are walked through in it."""

    def __init__(self, run: Run, world: World, crowd: Crowd, folder: Path) -> None:
        self._run, self._world, self._crowd, self._arming = run, world, crowd, Arming(folder)
        self._random = Random(run.seed)
        self.passed: list[Passed] = []
        self.missed: list[Point] = []

    def go(self, points: Sequence[Point]) -> None:
        """Raises ProcessTrouble when a job does not get on again, or what was killed does not start any more."""
        for point in points:
            if self._run.over:
                return
            passed = self._kill_at(point)
            if passed is None:
                self.missed.append(point)
                self._run.say(f"{point.name:32}was not passed within {_HIT_SECONDS:g} s")
            else:
                self.passed.append(passed)
                self._run.say(str(passed))

    def _kill_at(self, point: Point) -> Passed | None:
        began = time.monotonic_ns()
        if not self._hit(point):
            self._arming.disarm(point)
            return None
        at = time.monotonic_ns()
        self._world.mark(f"killed at {point.name}")
        victim = restart_victim(self._world, point)
        self._wait_turns(at, f"have a turn after a kill at {point.name}")
        return Passed(point, victim, (at - began) / NS, (time.monotonic_ns() - at) / NS)

    def _hit(self, point: Point) -> bool:
        """Arm the point, and see to it that it is passed; whether it was."""
        if point.traffic is Traffic.PROCESSES:
            return self._visited(point)
        self._arming.arm(point)
        self._provoke(point)
        return self._arming.wait_hit(point, _HIT_SECONDS)

    def _provoke(self, point: Point) -> None:
        """Do what has to be done besides: most points are passed by what jobs and the crowd do by themselves."""
        world = self._world
        match point.traffic:
            case Traffic.RESUME:
                self._move_clients(point)
            case Traffic.START:
                self._restart(any_agent(world, self._random))
            case Traffic.REGISTRATION:
                node = self._random.choice(world.nodes).name
                background.call(_end_registration(world.etcd.endpoints, node), _CALL_SECONDS)
            case _:
                pass

    def _visited(self, point: Point) -> bool:
        """A job has a turn, is taken off the devices by the next, and ends while nothing else goes on."""
        world = self._world
        visitor = world.start_job(f"visitor-{len(self.passed)}", rhythm=_RHYTHM, seed=self._run.seed)
        visitor.run()
        visitor.wait_turns(1, WITHIN)
        visitor.rest()
        visitor.wait_rested(WITHIN)
        self._wait_turns(time.monotonic_ns(), "have a turn after a visitor's")
        with self._crowd.rest:
            for name in _JOBS:
                world.jobs[name].rest()
            for name in _JOBS:
                world.jobs[name].wait_rested(WITHIN)
            self._arming.arm(point)
            visitor.end()
            del world.jobs[visitor.name]
            hit = self._arming.wait_hit(point, _HIT_SECONDS)
            for name in _JOBS:
                world.jobs[name].run()
        return hit

    def _wait_turns(self, since: int, what: str) -> None:
        for name in _JOBS:
            self._world.jobs[name].wait_for(lambda lines: any(_after(line, since) for line in lines), WITHIN, what)

    def _move_clients(self, point: Point) -> None:
        """Kill one replica after the other, until a client of one has gone on with another."""
        for index in self._random.sample(range(len(self._world.endpoints)), len(self._world.endpoints)):
            self._restart(f"replica{index}")
            if self._arming.wait_hit(point, _MOVE_SECONDS):
                return

    def _restart(self, name: str) -> None:
        self._world.kill(name)
        self._world.restart(name)


async def _end_registration(etcd: Sequence[str], node: str) -> None:
    async with EtcdClient(etcd) as client:
        registered = await client.get(Keys().agent(node))
        if registered is not None:
            await client.revoke(registered.lease)


def _after(line: Line, mono: int) -> bool:
    return isinstance(line, Yielded) and line.granted > mono


@contextmanager
def _armed_helpers(folder: Path) -> Iterator[None]:
    """The crowd's clients are this process's own: their helper has failpoints too."""
    before = os.environ.get(failpoint.ENVIRONMENT)
    os.environ[failpoint.ENVIRONMENT] = f"@{folder}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[failpoint.ENVIRONMENT]
        else:
            os.environ[failpoint.ENVIRONMENT] = before


def walk(run: Run, points: Sequence[Point]) -> tuple[list[str], list[Violation]]:
    """Kill at each of the points, in a random order, at most as many as the run's count."""
    chosen = Random(run.seed).sample(list(points), min(run.count, len(points)))
    stuck: list[Violation] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="timeslice-points-")))
        stack.enter_context(_armed_helpers(folder))
        world = stack.enter_context(World(replicas=3, nodes=2, failpoints=folder))
        eyes = stack.enter_context(observer(world))
        for index, job in enumerate(_JOBS):
            world.start_job(job, rhythm=_RHYTHM, seed=run.seed * 10 + index).run()
        for one in world.jobs.values():
            one.wait_turns(1, WITHIN)
        crowd = Crowd(world, eyes, run.seed)
        passing = Walk(run, world, crowd, folder)
        try:
            with crowd:
                passing.go(chosen)
            rest_all(world)
        except (ProcessTrouble, TimeoutError) as error:
            stuck.append(Violation("the system goes on", str(error)))
        facts, violations = judged(world, eyes, excused=(QUITTER, PASSER_BY))
        found = switches(world.history())
    missed = [Violation("every point is passed", f"{one.name}: {one.traffic.value}") for one in passing.missed]
    hits = Counter(one.point.party.value for one in passing.passed)
    recovered = tuple(one.recovered for one in passing.passed)
    run.note(Figures(len(found), len(passing.passed), hits, recovered))
    by_party = ", ".join(f"{count} {party}" for party, count in sorted(hits.items()))
    own = [
        f"points: {len(passing.passed)} of {len(chosen)} hit ({by_party})",
        f"every job had a turn again after a kill: {spread(recovered)}",
    ]
    return [*own, *facts], [*stuck, *missed, *violations]


FAILPOINTS = Scenario(
    "failpoints",
    "A process that is killed at any of the named points delays the others, and no more; each point is passed.",
    len(POINTS),
    lambda run: walk(run, POINTS),
)
