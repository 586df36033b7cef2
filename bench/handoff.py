# SPDX-License-Identifier: Apache-2.0
"""What a hand-off costs beyond the state that moves: ``python -m bench.handoff``, or ``make bench``.

In one run, interleaved round by round, with one etcd member and with three: a bare transaction; an acquire and a yield
that nobody contends; a hand-off between two jobs without processes; and one between two jobs with a process each, whose
state is next to nothing on a device that copies in no time. Each beside the bare transaction of the same round.

etcd runs without fsync here: a disk adds its own time to every write, the bare transaction's included.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

import tsclient as ts
from chaos import background
from chaos.processes import Child
from chaos.world import Shape, World
from ledger.etcd import EtcdClient
from ledger.etcd.txn import Put, modified_at
from timeslice_proto.v1 import coordinator_pb2, records_pb2

_WITHIN = 30.0
_KEY, _VALUE = b"/bench/key", b"x" * 300
_NOTHING = Shape(devices=3, bandwidth=1e15, latency=0.0)

BARE = "bare transaction"
ALONE = "acquire + yield, uncontended"
EMPTY = "hand-off, no process"
TINY = "hand-off, a process each"


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: seconds, and how many revisions of the store it took."""

    seconds: float
    revisions: int


class Store:
    """A client of etcd that is asked from this thread; times are taken inside its event loop."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._client = background.call(_client(endpoints), _WITHIN)
        self._mod = background.call(self._client.put(_KEY, _VALUE), _WITHIN).header.revision

    def revision(self) -> int:
        return background.call(self._client.get_prefix(_KEY, limit=1), _WITHIN).revision

    def bare(self) -> float:
        """Seconds of a transaction of one compare and one put."""
        return background.call(self._bare(), _WITHIN)

    async def _bare(self) -> float:
        began = time.perf_counter()
        result = await self._client.txn([modified_at(_KEY, self._mod)], [Put(_KEY, _VALUE)])
        took = time.perf_counter() - began
        self._mod = result.revision
        return took

    def close(self) -> None:
        background.call(self._client.close(), _WITHIN)


async def _client(endpoints: Sequence[str]) -> EtcdClient:
    return EtcdClient(endpoints)


class Pair:
    """Two jobs of one group, one of which holds the turn; each `hand_off` gives it to the other."""

    def __init__(self, world: World, group: str, device: str, stack: ExitStack, *, processes: bool) -> None:
        self._group = group
        self._clients = [stack.enter_context(ts.connect(world.endpoints, job=f"{group}-{side}")) for side in ("a", "b")]
        self._pool = stack.enter_context(ThreadPoolExecutor(1))
        self._turn = self._clients[0].acquire(group, timeout=_WITHIN)
        if processes:
            for _ in self._clients:
                stack.callback(_attach(world, self._turn.job, group, device).kill)
                self.hand_off()

    def hand_off(self) -> float:
        """Seconds from the call of yield until the other's acquire has returned."""
        queued = threading.Event()
        other = self._pool.submit(self._wait, self._clients[1], queued)
        if not queued.wait(_WITHIN):
            raise TimeoutError(f"nobody was queued in {self._group}")
        began = time.perf_counter()
        self._turn.yield_()
        self._turn, ended = other.result(_WITHIN)
        self._clients.reverse()
        return ended - began

    def close(self) -> None:
        self._turn.yield_()

    def _wait(self, client: ts.Client, queued: threading.Event) -> tuple[ts.Turn, float]:
        turn = client.acquire(self._group, timeout=_WITHIN, on_progress=lambda _: queued.set())
        return turn, time.perf_counter()


def _attach(world: World, job: str, group: str, device: str) -> Child:
    """A process of the job with 64 bytes on the device."""
    (node,) = world.nodes
    child = Child(
        f"worker of {job}",
        ("-m", "chaos.dev.worker", str(node.socket), device),
        world.folder / f"worker-{job}.log",
        environment={"TIMESLICE_JOB_ID": job, "TIMESLICE_GROUP": group},
        ready="^{}",  # its answer
    )
    child.start()
    child.write("attach 64 64")
    child.wait_ready(_WITHIN)
    return child


class Rig:
    """A world with so many etcd members, and what is measured in it."""

    def __init__(self, members: int, replicas: int, stack: ExitStack) -> None:
        self.members = members
        world = stack.enter_context(World(replicas=replicas, nodes=1, etcd=members, shape=_NOTHING, group=""))
        self._store = Store(world.etcd.endpoints)
        stack.callback(self._store.close)
        (node,) = world.nodes
        groups = ("alone", "empty", "tiny")
        for group, device in zip(groups, node.devices, strict=True):
            _make(world, group, records_pb2.NodeDevices(node=node.name, devices=[device]))
        self._alone = stack.enter_context(ts.connect(world.endpoints, job="alone"))
        self._empty = Pair(world, "empty", node.devices[1], stack, processes=False)
        stack.callback(self._empty.close)
        self._tiny = Pair(world, "tiny", node.devices[2], stack, processes=True)
        stack.callback(self._tiny.close)
        self._acquire_and_yield()  # the first is a switch: nobody knows yet who is on

    def round(self) -> Iterator[tuple[str, Sample]]:
        """One of each."""
        yield BARE, self._sample(self._store.bare)
        yield ALONE, self._sample(self._acquire_and_yield)
        yield EMPTY, self._sample(self._empty.hand_off)
        yield TINY, self._sample(self._tiny.hand_off)

    def _acquire_and_yield(self) -> float:
        began = time.perf_counter()
        self._alone.acquire("alone", timeout=_WITHIN).yield_()
        return time.perf_counter() - began

    def _sample(self, measure: Callable[[], float]) -> Sample:
        before = self._store.revision()
        seconds = measure()
        return Sample(seconds, self._store.revision() - before)


def _make(world: World, group: str, devices: records_pb2.NodeDevices) -> None:
    with world.coordinator() as stub:
        stub.PutGroup(coordinator_pb2.PutGroupRequest(name=group, nodes=[devices]), timeout=_WITHIN)


def percentile(values: Sequence[float], part: float) -> float:
    """The smallest value that at least ``part`` of all are not above."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def table(samples: dict[tuple[int, str], list[Sample]]) -> Iterator[str]:
    """The lines of the report. Ratios are to the median of the bare transaction of the same etcd."""
    yield f"{'etcd':>4}  {'':30}{'p50 ms':>9}{'p99 ms':>9}{'p50 / bare':>12}{'p99 / bare':>12}{'revisions':>11}"
    for (members, what), taken in sorted(samples.items(), key=lambda one: one[0][0]):
        seconds = [one.seconds for one in taken]
        bare = median(one.seconds for one in samples[members, BARE])
        half, most = median(seconds), percentile(seconds, 0.99)
        revisions = median(one.revisions for one in taken)
        yield (
            f"{members:>4}  {what:30}{half * 1e3:>9.2f}{most * 1e3:>9.2f}{half / bare:>12.1f}{most / bare:>12.1f}"
            f"{revisions:>11g}"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.handoff", description="What a hand-off costs by itself.")
    parser.add_argument("--rounds", type=int, default=200, help="of each measurement (default: %(default)s)")
    parser.add_argument("--members", type=int, nargs="+", default=[1, 3], help="of etcd (default: 1 and 3)")
    parser.add_argument("--replicas", type=int, default=1, help="of the coordinator (default: %(default)s)")
    arguments = parser.parse_args()
    samples: dict[tuple[int, str], list[Sample]] = defaultdict(list)
    with ExitStack() as stack:
        rigs = [Rig(members, arguments.replicas, stack) for members in arguments.members]
        print(f"{arguments.rounds} rounds, {arguments.replicas} replicas, etcd without fsync", flush=True)
        for _ in range(arguments.rounds):
            for rig in rigs:
                for what, sample in rig.round():
                    samples[rig.members, what].append(sample)
    for line in table(samples):
        print(line)


if __name__ == "__main__":
    main()
