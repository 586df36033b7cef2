# SPDX-License-Identifier: Apache-2.0
"""Sessions that come and go, thousands of them: whether anything of them stays behind.

Most are streams without a process, some are real clients. They are closed, taken back, left to expire, killed. Memory
is measured against the number of sessions: what grows with it is a leak, what grows with the warming-up is not.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from random import Random

import grpc

from chaos import background
from chaos.checkers import Violation
from chaos.processes import Child, ProcessTrouble
from chaos.scenarios.scenario import WITHIN, Figures, Run, Scenario, judged, observer
from chaos.usage import Sample, Sampler, growth, leases
from chaos.visits import SentAway, VisitFailed, Way, visit
from chaos.world import World
from ledger.etcd import EtcdClient
from ledger.keys import DEFAULT_PREFIX, Keys

_BOUND = 1024.0
"""Bytes for each session that a process may grow by."""

_WARM = 0.2
"""Part of the sessions that is not looked at: caches fill, the allocator finds its size."""

_ENOUGH = 2_000
"""Sessions from which on a slope says something: the allocator grows by megabytes at a time."""

_SPARE_DESCRIPTORS = 8
"""By which the end may differ from the beginning: connections that are just being closed."""

_SENT_AWAY, _SENT_AWAY_LEAST = 0.01, 3
"""Part of the sessions, and how many in any case, that may be told to go on at another replica: visitors do not."""

_AT_ONCE = 16
_REAL_EVERY = 100
_GONE_WITHIN = 60.0
_LOOK_EVERY = 0.5
_SAY_EVERY = 60.0
_SAMPLES = 300
_SAMPLE_LEAST, _SAMPLE_MOST = 0.2, 3.0
_MIB = 1 << 20
_MEASURED = ("replica0", "replica1", "agent-n0")

_PREFIX = DEFAULT_PREFIX.encode()
_MAY_STAY = frozenset((Keys().compaction,))
"""Which revision history is kept from: written every few minutes, whatever else happens."""

_WAYS = {
    Way.CLOSED: 40,
    Way.YIELDED: 20,
    Way.CANCELLED: 10,
    Way.LEFT: 24,
    Way.LEFT_WAITING: 5,
    Way.LEFT_HOLDING: 1,
}


@dataclass(slots=True)
class _Crowd:
    """The sessions so far."""

    world: World
    run: Run
    random: Random
    opened: int = 0
    ways: Counter[str] = field(default_factory=Counter)
    gone: set[str] = field(default_factory=set)  # jobs whose tickets may go without a grant
    sent_away: int = 0
    failures: list[str] = field(default_factory=list)

    async def come_and_go(self) -> None:
        """Open as many as are wanted, spread over the time that there is."""
        began, slots = time.monotonic(), asyncio.Semaphore(_AT_ONCE)
        time_left = self.run.until - began
        pace = 0.0 if math.isinf(time_left) else time_left * 0.95 / self.run.count
        async with asyncio.TaskGroup() as visits:
            for number in range(self.run.count):
                if self.run.over:
                    break
                await asyncio.sleep(max(began + number * pace - time.monotonic(), 0.0))
                await slots.acquire()
                way = self.random.choices(list(_WAYS), list(_WAYS.values()))[0]
                visits.create_task(self._one(number, way, slots))

    async def _one(self, number: int, way: Way, slots: asyncio.Semaphore) -> None:
        job = f"visitor-{number}"
        endpoint = self.world.endpoints[number % len(self.world.endpoints)]
        if way.leaves or way is Way.CANCELLED:
            self.gone.add(job)
        try:
            if number % _REAL_EVERY == _REAL_EVERY - 1:
                self.gone.add(job)
                await asyncio.to_thread(self._real, job, killed=way.leaves)
            else:
                await visit(endpoint, self.world.group, job, way)
                self.ways[way.value] += 1
        except SentAway:
            self.gone.add(job)
            self.sent_away += 1
        except (VisitFailed, TimeoutError, grpc.RpcError, ProcessTrouble) as error:
            self.failures.append(f"{job} ({way.value}): {error!r}")
        finally:
            self.opened += 1
            slots.release()

    def _real(self, job: str, *, killed: bool) -> None:
        """A client process that has a turn, and is killed in it or ends by itself."""
        world = self.world
        environment = {
            "TIMESLICE_ENDPOINTS": ",".join(world.endpoints),
            "TIMESLICE_JOB_ID": job,
            "TIMESLICE_TTL": "2",
        }
        ready = "^visits" if killed else "^stays"
        log = world.folder / "visitors.log"
        child = Child(job, ["-m", "chaos.visitor", world.group], log, environment=environment, ready=ready)
        child.start()
        try:
            child.wait_ready(WITHIN)
            if not killed:
                child.close_input()
                child.wait(WITHIN)
        finally:
            child.kill()
        self.ways["a real client, killed" if killed else "a real client, closed"] += 1


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is in etcd: keys under the system's prefix, and how many leases."""

    keys: frozenset[bytes]
    leases: int

    def __str__(self) -> str:
        return f"{len(self.keys)} keys and {self.leases} leases"


def _kept(world: World) -> _Kept:
    return _Kept(background.call(_keys(world), WITHIN), leases(world.etcd.members[0]))


async def _keys(world: World) -> frozenset[bytes]:
    async with EtcdClient(world.etcd.endpoints) as client:
        return frozenset(kv.key for kv in (await client.get_prefix(_PREFIX, keys_only=True)).kvs)


def _sessions(run: Run) -> tuple[list[str], list[Violation]]:
    found: list[Violation] = []
    with World(replicas=2) as world, observer(world) as eyes:
        crowd = _Crowd(world, run, Random(run.seed))
        pids = {name: pid for name in _MEASURED if (pid := world.pid(name)) is not None}
        # The first switch writes what stays: a directive, an acknowledgement.
        background.call(visit(world.endpoints[0], world.group, "first", Way.YIELDED), WITHIN)
        before = _kept(world)
        every = min(max((run.until - time.monotonic()) / _SAMPLES, _SAMPLE_LEAST), _SAMPLE_MOST)
        with Sampler(pids, lambda: crowd.opened, every) as sampler:
            sampler.take()
            _wait_done(run, crowd, background.begin(crowd.come_and_go()))
            after = _wait_gone(world, before)
            sampler.take()
        found += [Violation("sessions come and go", what) for what in crowd.failures]
        own, grown = _grown(sampler.samples)
        facts, violations = judged(world, eyes, excused=tuple(crowd.gone))
        run.note(Figures(faults=crowd.opened, hits=crowd.ways))
    if crowd.sent_away > max(crowd.opened * _SENT_AWAY, _SENT_AWAY_LEAST):
        found.append(Violation("sessions come and go", f"{crowd.sent_away} of {crowd.opened} were sent away"))
    left = sorted(key.decode() for key in after.keys - before.keys - _MAY_STAY)
    if left or after.leases > before.leases:
        what = f"{after.leases - before.leases} leases and {len(left)} keys are left: {', '.join(left[:5])}"
        found.append(Violation("nothing stays behind", what))
    if crowd.opened < run.count and not (run.stop is not None and run.stop.is_set()):
        found.append(Violation("the scenario itself", f"{crowd.opened} of {run.count} sessions came about in time"))
    ways = [f"  {count} {way}" for way, count in crowd.ways.most_common()]
    ways += [f"  {crowd.sent_away} sent to another replica, since etcd was slow"] if crowd.sent_away else []
    kept = (
        f"etcd: {len(before.keys)} keys and {before.leases} leases before, {len(after.keys)} and {after.leases} after"
    )
    return [f"sessions: {crowd.opened}", *ways, *own, kept, *facts], [*found, *grown, *violations]


def _wait_done(run: Run, crowd: _Crowd, working: Future[None]) -> None:
    """Until all have come and gone. Raises TimeoutError when nothing happens for a minute."""
    while True:
        opened = crowd.opened
        done, _ = wait((working,), _SAY_EVERY)
        run.say(f"{crowd.opened} sessions")
        if done:
            return working.result()
        if crowd.opened == opened and not run.over:
            working.cancel()
            raise TimeoutError(f"no session has come to its end for {_SAY_EVERY:g} s")


def _wait_gone(world: World, before: _Kept) -> _Kept:
    """What is in etcd once nothing more goes, after a minute at the latest."""
    deadline = time.monotonic() + _GONE_WITHIN
    while True:
        after = _kept(world)
        gone = after.keys <= before.keys | _MAY_STAY and after.leases <= before.leases
        if gone or time.monotonic() >= deadline:
            return after
        time.sleep(_LOOK_EVERY)


def _grown(samples: Sequence[Sample]) -> tuple[list[str], list[Violation]]:
    """What each process has grown by, and whether that is too much."""
    facts, found = [], []
    last = samples[-1]
    warm = [one for one in samples if one.opened >= last.opened * _WARM]
    for name in last.uses:
        by = growth(samples, name, _WARM)
        first, then, end = (one.uses[name] for one in (samples[0], warm[0], last))
        memory = " → ".join(f"{use.memory / _MIB:.1f}" for use in (first, then, end))
        files = " → ".join(str(use.descriptors) for use in (first, then, end))
        facts.append(
            f"{name}: {by:,.0f} bytes a session after the first {_WARM:.0%}; {memory} MiB; {files} descriptors"
        )
        if last.opened >= _ENOUGH and by > _BOUND:
            found.append(Violation("memory is flat", f"{name} grows by {by:,.0f} bytes a session"))
        if end.descriptors > first.descriptors + _SPARE_DESCRIPTORS:
            found.append(Violation("descriptors are flat", f"{name}: {files}"))
    return facts, found


SESSIONS = Scenario(
    "sessions",
    "Sessions come and go, and nothing of them stays: neither memory nor descriptors, keys or leases.",
    10_000,
    _sessions,
    paced=True,
)
