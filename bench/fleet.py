# SPDX-License-Identifier: Apache-2.0
"""Replicas and many nodes on one machine: the agents are tasks of a few processes (`bench.agents`)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence

from bench.agents import device
from bench.load import Window
from bench.store import WITHIN
from bench.system import Bench, Speaker, free_port, put_groups, replica, started
from bench.usage import Usage
from timeslice_proto.v1 import records_pb2

_OPEN_SECONDS = 300.0

LOST = "A decision lost a guard"
"""In a line of a replica's log, one for each."""


class Fleet:
    """A system under a prefix of its own.

    Attributes:
        prefix: of its keys.
        nodes: their names.
        endpoints: of the replicas.

    Args:
        nodes: how many; named ``n0``, ``n1``, …
        processes: in which their agents are tasks.
        devices: of each node.
    """

    def __init__(
        self,
        bench: Bench,
        stack: contextlib.ExitStack,
        name: str,
        *,
        replicas: int = 1,
        nodes: int = 1,
        processes: int = 1,
        devices: int = 8,
    ) -> None:
        self.prefix = prefix = f"/{name}/"
        stack.callback(bench.store.delete, prefix)
        self.nodes = [f"n{n}" for n in range(nodes)]
        self.endpoints = [free_port(stack) for _ in range(replicas)]
        self._etcd = bench.etcd
        self._replicas = {
            f"replica{n}": replica(bench, f"{name}-replica{n}", prefix, endpoint)
            for n, endpoint in enumerate(self.endpoints)
        }
        started(stack, *self._replicas.values())
        self._agents = {}
        for n in range(min(processes, nodes)):
            state = bench.memory / f"{name}-{n}"
            command = ["-m", "bench.agents", "--etcd", bench.etcd_option, "--prefix", prefix, "--state", str(state)]
            command += ["--devices", str(devices), "--nodes", *self.nodes[n::processes]]
            self._agents[f"agents{n}"] = Speaker(bench, stack, f"{name}-agents{n}", command, ready=r"\d+ agents serve")
        for agents in self._agents.values():
            agents.wait_ready()

    def put_groups(self, groups: Mapping[str, Iterable[tuple[str, int]]]) -> None:
        """Make groups of devices, each a node and a number there."""
        put_groups(
            self.endpoints[0],
            {
                name: [records_pb2.NodeDevices(node=node, devices=[device(node, n)]) for node, n in places]
                for name, places in groups.items()
            },
        )

    def attach(self, group: str, job: str, number: int, cost: float, nodes: Sequence[str]) -> None:
        """Put a process of a job, whose turn it is, on device ``number`` of all these nodes.

        Args:
            cost: seconds of a switch on that device.
        """
        for agents in self._agents.values():
            agents.tell(f"attach {group} {job} {number} {cost} {','.join(nodes)}")
        for agents in self._agents.values():
            agents.answer("attached")

    def lost(self) -> int:
        """How many transactions have lost a guard, as the replicas' logs say. Lines take up to 50 ms to get there."""
        return sum(child.log.read_text(encoding="utf-8").count(LOST) for child in self._replicas.values())

    def usage(self, **others: int) -> Usage:
        """Of the replicas, the agents' processes and the first etcd member; ``others`` by pid."""
        pids = {name: child.pid for name, child in self._replicas.items()}
        pids |= {name: agents.pid for name, agents in self._agents.items()}
        pids |= {"etcd": self._etcd.members[0].pid, **others}
        return Usage.of({name: pid for name, pid in pids.items() if pid is not None})


class Load:
    """Many jobs' sessions in one process; see `bench.load`."""

    def __init__(
        self,
        bench: Bench,
        stack: contextlib.ExitStack,
        name: str,
        endpoints: Sequence[str],
        groups: Sequence[str],
        *,
        jobs: int = 4,
        channels: int = 4,
        ttl: float = 60.0,
    ) -> None:
        command = ["-m", "bench.load", "--endpoint", ",".join(endpoints), "--jobs", str(jobs)]
        command += ["--channels", str(channels), "--ttl", str(ttl), "--groups", *groups]
        self._process = Speaker(bench, stack, f"load-{name}", command, ready="ready")

    @property
    def pid(self) -> int:
        return self._process.pid

    def open(self) -> None:
        """Open all sessions, and return when each has the turn or a place."""
        self._process.tell("open")
        self._process.answer("opened", _OPEN_SECONDS)

    def go(self, hold: float = 0.0) -> None:
        """Have every turn given back after ``hold`` seconds, and asked for again."""
        self._process.tell(f"go {hold}")
        self._process.answer("going")

    def rest(self) -> None:
        """Let every turn be kept."""
        self._process.tell("rest")
        self._process.answer("resting")

    def begin_window(self, seconds: float) -> None:
        """`end_window` is due after so many seconds."""
        self._process.tell(f"window {seconds}")

    def end_window(self, seconds: float) -> Window:
        return Window(**json.loads(self._process.answer("{", seconds + WITHIN)))

    def window(self, seconds: float) -> Window:
        self.begin_window(seconds)
        return self.end_window(seconds)
