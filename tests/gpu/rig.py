# SPDX-License-Identifier: Apache-2.0
"""The whole system around the devices of this machine: etcd, two replicas, the agent, and jobs. All are processes.

What the devices are is a `Bench`: real ones, or the simulated device, on which the same stories are tested without.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from chaos.observer import Observer
from chaos.processes import Child, ProcessTrouble, wait_all_ready
from ledger.embedded import EtcdCluster
from ledger.keys import DEFAULT_PREFIX, Keys
from ledger.ports import ReservedPorts
from timeslice_proto.v1 import coordinator_pb2, coordinator_pb2_grpc, records_pb2

GROUP, NODE = "shared", "here"
WITHIN = 120.0
_TTL = 4.0
_DRIVEN = re.compile(r"Process (\d+): (\w+) took ([\d.]+) ms\.")


@dataclass(frozen=True, slots=True)
class Bench:
    """The devices, and how the agent and the jobs come to them."""

    kind: str
    devices: tuple[str, ...]
    agent: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Driven:
    """A driver call that the agent made, in seconds."""

    pid: int
    call: str
    took: float


class Job:
    """A `tests.gpu.worker` process, and what it has said."""

    def __init__(self, name: str, kind: str, size: int, log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._changed = threading.Condition()
        self._said: list[dict[str, Any]] = []
        command = ["-m", "tests.gpu.worker", kind, str(size)]
        self.child = Child(
            name,
            command,
            log,
            environment=environment,
            ready='"event": "ready"',
            on_line=self._take,
            on_silence=self._wake,
        )

    @property
    def pid(self) -> int:
        pid = self.child.pid
        assert pid is not None, f"{self.name} has ended"
        return pid

    def said(self, event: str) -> list[dict[str, Any]]:
        with self._changed:
            return [one for one in self._said if one["event"] == event]

    def tell(self, line: str) -> None:
        self.child.write(line)

    def wait(self, event: str, count: int, within: float = WITHIN) -> dict[str, Any]:
        """The ``count``-th line of that event, from 1. Raises ProcessTrouble, at once if it has ended."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._all(event)) >= count or self.child.silent, within)
            found = self._all(event)
        if len(found) >= count:
            return found[count - 1]
        raise ProcessTrouble(self.name, f"said {event!r} {len(found)} times, not {count}", self.child.log)

    def do(self, line: str, within: float = WITHIN) -> None:
        """Tell it, and wait until it has done it."""
        done = len(self.said("done"))
        self.tell(line)
        self.wait("done", done + 1, within)

    def _all(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self._said if one["event"] == event]

    def _take(self, text: str) -> None:
        if not text.startswith('{"event"'):
            return
        with self._changed:
            self._said.append(json.loads(text))
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


class Rig:
    """``with Rig(bench, folder) as rig``: everything is up, and one group has all devices of the bench."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench, self.folder = bench, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.etcd = EtcdCluster(1)
        self._ports = ReservedPorts(2)
        self._endpoints = [f"127.0.0.1:{port}" for port in self._ports.ports]
        self._jobs: list[Job] = []
        self._up = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as up:
            up.callback(self._ports.close)
            up.callback(self.etcd.stop)
            self.etcd.start()
            store = ("--etcd", ",".join(self.etcd.endpoints))
            replicas = [
                self._child(up, f"replica{i}", ("-m", "coordinator", *store, "--listen", one), "^coordinator .* serves")
                for i, one in enumerate(self._endpoints)
            ]
            own = ("--node", NODE, "--state-dir", str(self.folder / "state"), "--verbose", *self.bench.agent)
            self.agent = self._child(up, "agent", ("-m", "nodeagent", *store, *own), "is registered; incarnation")
            wait_all_ready([*replicas, self.agent], WITHIN)
            self.eyes = up.enter_context(Observer(self.etcd.endpoints, Keys(DEFAULT_PREFIX)))
            self._put_group()
            up.callback(self._end_jobs)
            self._up = up.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._up.close()

    def job(self, name: str, size: int, *, kind: str = "") -> Job:
        """Start a job; it has asked for nothing yet."""
        environment = {
            "TIMESLICE_ENDPOINTS": ",".join(self._endpoints),
            "TIMESLICE_TTL": str(_TTL),
            **self.belongs_to(name),
            **self.bench.environment,
        }
        job = Job(name, kind or self.bench.kind, size, self.folder / f"{name}.log", environment)
        self._jobs.append(job)
        job.child.start()
        job.child.wait_ready(WITHIN)
        return job

    def belongs_to(self, job: str) -> dict[str, str]:
        """The environment that makes a process one of that job's."""
        return {"TIMESLICE_JOB_ID": job, "TIMESLICE_GROUP": GROUP}

    def restart_agent(self, failpoints: str = "") -> None:
        """End it in an orderly way, if it runs, and start it; ``failpoints`` as in `ledger.failpoint`."""
        self.agent.end(signal.SIGTERM, WITHIN)
        self.agent.environment = {"TIMESLICE_FAILPOINTS": failpoints}
        self.agent.start()
        self.agent.wait_ready(WITHIN)

    def driven(self) -> Iterator[Driven]:
        """Every driver call on a job's process so far."""
        for pid, call, took in _DRIVEN.findall(self.agent.log.read_text(encoding="utf-8")):
            yield Driven(int(pid), call, float(took) / 1000)

    def _child(self, up: contextlib.ExitStack, name: str, command: Sequence[str], ready: str) -> Child:
        child = Child(name, command, self.folder / f"{name}.log", ready=ready)
        up.callback(child.kill)
        child.start()
        return child

    def _put_group(self) -> None:
        devices = [records_pb2.NodeDevices(node=NODE, devices=self.bench.devices)]
        with grpc.insecure_channel(self._endpoints[0]) as channel:
            stub = coordinator_pb2_grpc.CoordinatorStub(channel)
            stub.PutGroup(coordinator_pb2.PutGroupRequest(name=GROUP, nodes=devices), timeout=WITHIN)

    def _end_jobs(self) -> None:
        for job in self._jobs:
            job.child.kill()


Obstacle = Callable[[Rig, str], contextlib.AbstractContextManager[None]]
"""Makes processes of a job that cannot be moved; at the end of the block they are gone."""
