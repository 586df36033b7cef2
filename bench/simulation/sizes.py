# SPDX-License-Identifier: Apache-2.0
"""A system's size, and how busy each part of it would be: demand times cost, no queues. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bench.simulation.costs import Costs

BEATS_IN_TTL = 3


@dataclass(frozen=True, slots=True)
class Size:
    """A system.

    Attributes:
        groups: evenly spread over the nodes, each on one of them.
        sessions: evenly spread over the groups; all but one of each wait.
        replicas: processes of one thread, by which the groups are shared evenly; each sees all that happens.
        etcd_cores: that one etcd can use at once; 4: its applying is serial, its encoding and networking are not.
        turn: seconds of a turn, on average.
        switch: seconds that the devices need for a switch.
        ttl: seconds of a session.
    """

    nodes: int = 1000
    groups: int = 10_000
    sessions: int = 100_000
    replicas: int = 3
    etcd_cores: int = 4
    turn: float = 60.0
    switch: float = 5.0
    ttl: float = 60.0

    @property
    def hand_offs(self) -> float:
        """A second, in all groups."""
        return self.groups / (self.turn + self.switch)

    @property
    def beats(self) -> float:
        """A second, of all sessions."""
        return self.sessions * BEATS_IN_TTL / self.ttl

    def scaled(self, part: float) -> Size:
        """As much smaller: nodes, groups and sessions."""
        return replace(
            self,
            nodes=max(1, round(self.nodes * part)),
            groups=max(1, round(self.groups * part)),
            sessions=max(2, round(self.sessions * part)),
        )


def loads(size: Size, costs: Costs) -> Mapping[str, float]:
    """Of each part: 1 is all that it can do. A replica: its own groups and sessions, and seeing all else."""
    own = 1 / size.replicas
    replica = size.hand_offs * (own * costs.replica + (1 - own) * costs.watcher) + size.beats * own * costs.beat_replica
    etcd = (size.hand_offs * costs.etcd + size.beats * costs.beat_etcd) / size.etcd_cores
    return {"replica": replica, "etcd": etcd, "agent": size.hand_offs / size.nodes * costs.agent}


def first_limit(size: Size, costs: Costs, full: float = 0.7) -> tuple[str, float]:
    """Which part is ``full`` first as a system like this grows, and at what multiple of ``size``; below 1: too big.

    Nodes grow with the groups, so an agent's load stays as it is.
    """
    found = {name: full / load if load else math.inf for name, load in loads(size, costs).items() if name != "agent"}
    part = min(found, key=lambda name: found[name])
    return part, found[part]


def shards_for(size: Size, costs: Costs, full: float = 0.7) -> int:
    """Over how many etcd clusters, each with so many replicas, the groups must be spread for no part to be fuller."""
    shards = 1
    while max(loads(size.scaled(1 / shards), costs).values()) > full:
        shards += 1
    return shards
