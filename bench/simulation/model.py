# SPDX-License-Identifier: Apache-2.0
"""The simulation: every hand-off and every heartbeat of a system goes through the queues of its parts. Pure.

A hand-off's steps follow one another as in the real one: replica, etcd, agent, etcd, replica, etcd, agent (and the
devices' own time), etcd, replica, etcd, replica. Each step waits for its part's earlier work and takes its share of
what a hand-off costs there; what a hand-off takes beyond that in an idle system is spread over the steps as a delay in
which nothing is occupied: wake-ups and the network.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from bench.measure import percentile
from bench.simulation.costs import Costs
from bench.simulation.sizes import Size

_REPLICA_STEPS, _ETCD_STEPS, _AGENT_STEPS = 4, 5, 2
_STEPS = ("replica", "etcd", "agent", "etcd", "replica", "etcd", "agent", "etcd", "replica", "etcd", "replica")
_LONG = 20
"""Times the hand-off of an idle system, after which one counts as not done."""

_DEVICES_AFTER = 6
"""The step in which the devices copy: the agent's second."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds of hand-offs without the devices' time, and how busy the busiest of each part was.

    Attributes:
        kept_up: the share of hand-offs that ended in time, of those that were begun long enough before the end: below 1
            it falls behind.
    """

    p50: float
    p99: float
    hand_offs: int
    replica: float
    etcd: float
    kept_up: float


class _Server:
    """A part that works on ``width`` things at a time, in the order of their coming."""

    def __init__(self, width: int) -> None:
        self._free = [0.0] * width
        self.busy = 0.0

    def serve(self, now: float, seconds: float) -> float:
        """When it is done."""
        begin = max(now, heapq.heappop(self._free))
        heapq.heappush(self._free, begin + seconds)
        self.busy += seconds
        return begin + seconds


def simulate(size: Size, costs: Costs, *, seconds: float, warm_up: float, seed: int = 1) -> Outcome:
    """Run the system for so long; what ends in the first ``warm_up`` seconds does not count."""
    rng = random.Random(seed)
    etcd, width = _Server(size.etcd_cores), size.replicas
    replicas = [_Server(1) for _ in range(width)]
    agents = [_Server(1) for _ in range(size.nodes)]
    known = costs.replica + costs.etcd + costs.agent
    delay = max(costs.hand_off - known, 0.0) / len(_STEPS)
    numbers = itertools.count()
    # When, in what order among equals, which group (-1: a heartbeat), its step, and when the hand-off began.
    events = [(rng.uniform(0, size.turn), next(numbers), group, 0, 0.0) for group in range(size.groups)]
    events.append((rng.expovariate(size.beats), next(numbers), -1, 0, 0.0))
    heapq.heapify(events)
    latest = seconds - size.switch - _LONG * costs.hand_off
    taken: list[float] = []
    begun = ended = 0
    while events and events[0][0] < seconds:
        now, _, group, step, began = heapq.heappop(events)
        if group < 0:
            at = replicas[rng.randrange(width)].serve(now, costs.beat_replica)
            etcd.serve(at, costs.beat_etcd)
            heapq.heappush(events, (now + rng.expovariate(size.beats), next(numbers), -1, 0, 0.0))
            continue
        if step == 0:
            began, begun = now, begun + (warm_up <= now < latest)
        match _STEPS[step]:
            case "replica":
                done = replicas[group % width].serve(now, costs.replica / _REPLICA_STEPS)
                for other in range(width):
                    if other != group % width:
                        replicas[other].serve(now, costs.watcher / _REPLICA_STEPS)
            case "etcd":
                done = etcd.serve(now, costs.etcd / _ETCD_STEPS)
            case _:
                done = agents[group % size.nodes].serve(now, costs.agent / _AGENT_STEPS)
        done += delay
        if step == _DEVICES_AFTER:
            done += size.switch
        if step + 1 < len(_STEPS):
            heapq.heappush(events, (done, next(numbers), group, step + 1, began))
            continue
        if warm_up <= began < latest and done < seconds:
            taken.append(done - began - size.switch)
            ended += 1
        heapq.heappush(events, (done + rng.expovariate(1 / size.turn), next(numbers), group, 0, 0.0))
    return _outcome(taken, [one.busy for one in replicas], etcd.busy / size.etcd_cores, seconds, begun, ended)


def _outcome(
    taken: Sequence[float], replicas: Sequence[float], etcd: float, seconds: float, begun: int, ended: int
) -> Outcome:
    p50, p99 = (percentile(taken, part) if taken else float("inf") for part in (0.5, 0.99))
    return Outcome(p50, p99, ended, max(replicas) / seconds, etcd / seconds, ended / begun if begun else 0.0)
