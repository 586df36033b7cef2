# SPDX-License-Identifier: Apache-2.0
"""The processes that are measured: one etcd for all, systems and floors under prefixes of their own."""

from __future__ import annotations

import contextlib
import itertools
import queue
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from bench.measure import Sample
from bench.store import WITHIN, Store
from chaos.processes import Child, ProcessTrouble, wait_all_ready
from ledger.embedded import EtcdCluster
from ledger.ports import ReservedPorts
from timeslice_proto.v1 import coordinator_pb2, coordinator_pb2_grpc, records_pb2

_HOST_MEMORY = 1 << 40
_FREE = 1e15
"""Bytes a second of a device whose copies cost nothing."""

_LOOK = 1.0
"""Seconds after which it is asked whether who has to answer still runs."""


class Bench:
    """One etcd and all that is measured on it; all processes end with the context.

    Args:
        fsync: etcd writes to the disk before it answers. A disk adds its own time to every write, the bare
            transaction's included.
        folder: for the logs of all processes, kept; None: a temporary one.
    """

    def __init__(self, *, fsync: bool = False, members: int = 1, folder: Path | None = None) -> None:
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="timeslice-bench-")) if folder is None else folder
        self.folder.mkdir(parents=True, exist_ok=True)
        # Apart from the logs, since a Unix socket's path has at most 107 bytes.
        self.sockets = Path(tempfile.mkdtemp(prefix="timeslice-"))
        # Where many nodes' journals are on one machine, whose disk would be asked in the place of as many disks.
        shared = Path("/dev/shm")
        self.memory = Path(tempfile.mkdtemp(prefix="timeslice-bench-", dir=shared if shared.is_dir() else None))
        self.etcd = EtcdCluster(members, fast=not fsync)
        self._stack = contextlib.ExitStack()
        self._numbers = itertools.count()
        self.store: Store

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for folder in (self.sockets, self.memory, *((self.folder,) if self._temporary else ())):
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
            self.etcd.start()
            stack.callback(self.etcd.stop)
            self.store = Store(self.etcd.endpoints)
            stack.callback(self.store.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def child(self, name: str, command: Sequence[str], ready: str) -> Child:
        """A process that is not started yet."""
        name = f"{next(self._numbers)}-{name}"
        return Child(name, command, self.folder / f"{name}.log", ready=ready)

    @property
    def etcd_option(self) -> str:
        return ",".join(self.etcd.endpoints)


class Speaker:
    """A program that is told something a line, and answers with lines that begin with a word.

    Args:
        command: of this Python interpreter.
        ready: what its first line begins with.
    """

    def __init__(
        self, bench: Bench, stack: contextlib.ExitStack, name: str, command: Sequence[str], *, ready: str
    ) -> None:
        self._lines = queue.SimpleQueue[str]()
        log = bench.folder / f"{name}.log"
        self.child = Child(name, command, log, ready=f"^{ready}", on_line=self._lines.put)
        self.child.start()
        stack.callback(self.child.kill)

    @property
    def pid(self) -> int:
        """Raises ProcessTrouble where it has ended."""
        pid = self.child.pid
        if pid is None:
            raise ProcessTrouble(self.child.name, "has ended", self.child.log)
        return pid

    def tell(self, command: str) -> None:
        """Once it is ready, which several can become side by side. Raises ProcessTrouble."""
        self.child.wait_ready(WITHIN)
        self.child.write(command)

    def wait_ready(self) -> None:
        """Raises ProcessTrouble."""
        self.child.wait_ready(WITHIN)

    def answer(self, begins: str, within: float = WITHIN) -> str:
        """The next line that begins so; others are passed over. Raises ProcessTrouble where none comes."""
        limit = time.monotonic() + within
        while True:
            try:
                line = self._lines.get(timeout=max(min(limit - time.monotonic(), _LOOK), 0.0))
            except queue.Empty:
                if time.monotonic() >= limit or self.child.silent:
                    raise ProcessTrouble(self.child.name, f"has not said {begins!r}", self.child.log) from None
                continue
            if line.startswith(begins):
                return line


def replica(bench: Bench, name: str, prefix: str, endpoint: str) -> Child:
    """A coordinator's process that is not started yet."""
    command = ["-m", "coordinator", "--etcd", bench.etcd_option, "--prefix", prefix, "--listen", endpoint]
    return bench.child(name, command, "^coordinator .* serves")


def put_groups(endpoint: str, groups: Mapping[str, Sequence[records_pb2.NodeDevices]]) -> None:
    """Make groups of these devices, by name. Raises grpc.RpcError."""
    with grpc.insecure_channel(endpoint) as channel:
        stub = coordinator_pb2_grpc.CoordinatorStub(channel)
        for name, devices in groups.items():
            stub.PutGroup(coordinator_pb2.PutGroupRequest(name=name, nodes=devices), timeout=WITHIN)


def free_port(stack: contextlib.ExitStack) -> str:
    """An address that nobody else gets until ``stack`` is closed."""
    ports = ReservedPorts(1)
    stack.callback(ports.close)
    return f"127.0.0.1:{ports.ports[0]}"


def started(stack: contextlib.ExitStack, *children: Child) -> None:
    """Start them, to be killed with ``stack``, and wait until all are ready. Raises ProcessTrouble."""
    for child in children:
        child.start()
        stack.callback(child.kill)
    wait_all_ready(children, WITHIN)


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a system, its devices and their socket."""

    name: str
    devices: tuple[str, ...]
    socket: Path


class System:
    """Replicas, agents and their simulated devices, under a prefix of their own.

    Attributes:
        processes: by what they are: ``replica0``, ``agent-n0``, ``device-n0``.

    Args:
        latency: seconds that each copy of a device takes.
    """

    def __init__(
        self,
        bench: Bench,
        stack: contextlib.ExitStack,
        name: str,
        *,
        replicas: int = 1,
        nodes: int = 1,
        devices: int = 1,
        latency: float = 0.0,
    ) -> None:
        self.bench, self.name, self.prefix = bench, name, f"/{name}/"
        stack.callback(bench.store.delete, self.prefix)
        ports = ReservedPorts(replicas)
        stack.callback(ports.close)
        self.endpoints = tuple(f"127.0.0.1:{port}" for port in ports.ports)
        self.nodes = tuple(
            Node(f"n{n}", tuple(f"SIM-{name}-n{n}-{d}" for d in range(devices)), bench.sockets / f"{name}-n{n}")
            for n in range(nodes)
        )
        self.processes: dict[str, Child] = {}
        for node in self.nodes:
            self.processes[f"device-{node.name}"] = bench.child(
                f"{name}-device-{node.name}",
                [
                    *("-m", "nodeagent.backends.sim.device", "--socket", str(node.socket)),
                    *("--log", str(self.event_log(node)), "--devices", str(devices)),
                    *("--prefix", f"SIM-{name}-{node.name}-", "--bandwidth", str(_FREE), "--latency", str(latency)),
                ],
                "^simulated devices serve",
            )
        started(stack, *self.processes.values())
        store = ("--etcd", bench.etcd_option, "--prefix", self.prefix)
        rest = {
            f"replica{i}": replica(bench, f"{name}-replica{i}", self.prefix, endpoint)
            for i, endpoint in enumerate(self.endpoints)
        }
        for node in self.nodes:
            state = bench.folder / f"{name}-state-{node.name}"
            command = ["-m", "nodeagent", *store, "--node", node.name, "--backend", "sim"]
            command += ["--sim-socket", str(node.socket), "--state-dir", str(state), "--host-memory", str(_HOST_MEMORY)]
            rest[f"agent-{node.name}"] = bench.child(f"{name}-agent-{node.name}", command, "^agent .* serves")
        self.processes |= rest
        started(stack, *rest.values())

    def event_log(self, node: Node) -> Path:
        """What the node's devices have logged: the evidence of what ran."""
        return self.bench.folder / f"{self.name}-{node.name}.events"

    def put_group(self, name: str, *devices: tuple[Node, int]) -> None:
        """Make a group of one device on each of these nodes, by its number. Raises grpc.RpcError."""
        places = [records_pb2.NodeDevices(node=node.name, devices=[node.devices[index]]) for node, index in devices]
        put_groups(self.endpoints[0], {name: places})

    def attach(self, stack: contextlib.ExitStack, group: str, job: str, node: Node, device: int) -> None:
        """Start a process of the job with 64 bytes on a device, which the job's turn must have been given."""
        child = Child(
            f"worker of {job}",
            ("-m", "chaos.dev.worker", str(node.socket), node.devices[device]),
            self.bench.folder / f"worker-{group}-{job}.log",
            environment={"TIMESLICE_JOB_ID": job, "TIMESLICE_GROUP": group},
            ready="^{}",  # its answer
        )
        child.start()
        stack.callback(child.kill)
        child.write("attach 64 64")
        child.wait_ready(WITHIN)


class Contender:
    """A job in a process of its own that is told when to ask for a turn; see `bench.commands`.

    Args:
        module: ``bench.job`` or ``bench.floor.job``.
        within: seconds in which each answer must come.
    """

    def __init__(
        self,
        bench: Bench,
        stack: contextlib.ExitStack,
        module: str,
        endpoint: str,
        group: str,
        job: str,
        *,
        within: float = WITHIN,
    ) -> None:
        self.job, self._within = job, within
        command = ["-m", module, "--endpoint", endpoint, "--job", job, "--group", group]
        self._process = Speaker(bench, stack, f"{module}-{group}-{job}", command, ready="ready")

    def acquire(self) -> None:
        """Ask for the turn; `queued` or `granted` follow."""
        self._process.tell("acquire")

    def give_back(self) -> None:
        """`yielded` follows."""
        self._process.tell("yield")

    def granted(self) -> float:
        """When the turn came."""
        return self._times("granted")[0]

    def queued(self) -> None:
        self._times("queued")

    def yielded(self) -> float:
        """When the yield began."""
        return self._times("yielded")[0]

    def once(self) -> float:
        """Seconds of an acquire and a yield."""
        self._process.tell("once")
        return self._times("once")[0]

    def close(self) -> None:
        """Let it end, with its session."""
        self._process.child.close_input()
        self._process.child.wait(WITHIN)

    def _times(self, kind: str) -> list[float]:
        return [float(one) for one in self._process.answer(kind, self._within).split()[1:]]


class Pair:
    """Two jobs of one group, one of which has the turn; each hand-off gives it to the other."""

    def __init__(self, store: Store, first: Contender, second: Contender) -> None:
        self._store, self._holder, self._other = store, first, second
        first.acquire()
        first.granted()

    @property
    def holder(self) -> str:
        """The job that has the turn."""
        return self._holder.job

    @property
    def other(self) -> str:
        """The job that has not."""
        return self._other.job

    def hand_off(self) -> Sample:
        """From the call of yield until the other's acquire has returned; the revisions from yield to grant."""
        before = self.begin_hand_off()
        seconds = self.end_hand_off()
        return Sample(seconds, self._store.revision() - before)

    def begin_hand_off(self) -> int:
        """Have the turn given back while the other waits; the revision before that."""
        self._other.acquire()
        self._other.queued()
        before = self._store.revision()
        self._holder.give_back()
        return before

    def end_hand_off(self) -> float:
        """Wait for the grant; how long it took from the yield."""
        began, ended = self._holder.yielded(), self._other.granted()
        self._holder, self._other = self._other, self._holder
        return ended - began


def alone(store: Store, contender: Contender) -> Sample:
    """An acquire and a yield that nobody contends."""
    before = store.revision()
    seconds = contender.once()
    return Sample(seconds, store.revision() - before)
