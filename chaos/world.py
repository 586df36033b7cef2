# SPDX-License-Identifier: Apache-2.0
"""The whole system as real processes of this machine: to be watched, harmed and judged.

    with World(replicas=3, nodes=2) as world:
        job = world.start_job("job-a")
        job.run()
        job.wait_turns(3, within=60)
        world.kill("replica0")

etcd, replicas, agents, simulated devices, jobs and the recorder of the history each are a process with a name, a log
file in ``world.folder`` and, where they listen, a port that stays theirs. All die with this process.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from chaos import history
from chaos.apart import Namespace
from chaos.dev.job import Rhythm
from chaos.jobs import JobProcess
from chaos.marks import Mark
from chaos.members import Member, Named
from chaos.processes import Child, wait_all_ready
from chaos.proxy import Link
from ledger.embedded import EtcdCluster
from ledger.ports import ReservedPorts
from nodeagent.backends.sim import log as devicelog
from timeslice_proto.v1 import coordinator_pb2, coordinator_pb2_grpc, records_pb2

READY_SECONDS = 60.0
_STOP_SECONDS = 30.0
_CALL_SECONDS = 15.0

_HERE = "127.0.0.1"
_HOST_MEMORY = 1 << 40
"""What the devices hold counts for much more than it is, so this machine's own memory says nothing."""

# The lines by which each kind of process says that it is ready.
_DEVICE = "^simulated devices serve"
_REPLICA = "^coordinator .* serves"
_AGENT = "^agent .* serves"
_HISTORY = "^history records"


@dataclass(frozen=True, slots=True)
class Shape:
    """What the devices of each node are: how many, bytes of each, bytes a second and seconds of a copy."""

    devices: int = 1
    capacity: int = 80 << 30
    bandwidth: float = 50e9
    latency: float = 0.01


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its devices' UUIDs, their socket, and the log that is the evidence of what ran on them."""

    name: str
    devices: tuple[str, ...]
    socket: Path
    log: Path


class World:
    """Processes named ``etcd0``…, ``replica0``…, ``device-n0``…, ``agent-n0``…, ``history`` and those of the jobs.

    Args:
        group: made at the start, with all devices of all nodes; empty: none.
        policy: of that group.
        environment: more of it, by the name of the process.
        agent: the program that runs as agent.
        proxied: a proxy stands between every two parties that speak with each other: see `links`.
        apart: replicas by index that are in a network namespace each, in a world that is proxied; as root only.
        failpoints: points can be armed by files in this folder.
        folder: for logs and state; None: a temporary one, removed at the end.

    Attributes:
        namespaces: of the replicas that are apart, by name.
        links: where it is proxied, by who connects with whom: ("replica0", "etcd1"), ("job-a", "replica2"); to an
            etcd member from all its peers: ("peers", "etcd0").
        failpoints: as given.
        groups: the nodes of each that was made here.
        marks: all that was done to it, oldest first.

    Raises ProcessTrouble, EtcdServerError or grpc.RpcError on entering when something does not start in time.
    """

    def __init__(
        self,
        *,
        replicas: int = 1,
        nodes: int = 1,
        etcd: int = 1,
        shape: Shape | None = None,
        group: str = "demo",
        policy: records_pb2.Policy | None = None,
        environment: Mapping[str, Mapping[str, str]] | None = None,
        agent: Sequence[str] = ("-m", "nodeagent"),
        proxied: bool = False,
        apart: Sequence[int] = (),
        failpoints: Path | None = None,
        folder: Path | None = None,
    ) -> None:
        self.shape, self.group = shape or Shape(), group
        self._policy, self._environment, self._agent = policy, environment or {}, tuple(agent)
        self._proxied, self.failpoints = proxied, failpoints
        self.links: dict[tuple[str, str], Link] = {}
        self.groups: dict[str, tuple[Node, ...]] = {}
        self.marks: list[Mark] = []
        assert proxied or not apart, "what is apart reaches the others by proxies"
        self.namespaces = {f"replica{index}": Namespace() for index in apart}
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="timeslice-world-")) if folder is None else folder
        self.folder.mkdir(parents=True, exist_ok=True)
        # Apart from the logs, since a Unix socket's path has at most 107 bytes.
        self._sockets = Path(tempfile.mkdtemp(prefix="timeslice-"))
        self.nodes = tuple(self._node(f"n{index}") for index in range(nodes))
        self._ports = ReservedPorts(replicas + nodes)
        apart_hosts = {index: self.namespaces[f"replica{index}"].there for index in apart}
        self.endpoints = tuple(
            f"{apart_hosts.get(index, _HERE)}:{port}" for index, port in enumerate(self._ports.ports[:replicas])
        )
        self._agent_ports = self._ports.ports[replicas:]
        self.etcd = EtcdCluster(etcd)
        self.jobs: dict[str, JobProcess] = {}
        self._children: dict[str, Child] = {}
        self._history = self.folder / "history.jsonl"

    def _node(self, name: str) -> Node:
        devices = tuple(f"SIM-{name}-{index}" for index in range(self.shape.devices))
        return Node(name, devices, self._sockets / f"{name}.sock", self.folder / f"device-{name}.events")

    # ----------------------------------------------------------------------------------------- start and end

    def start(self) -> None:
        """Start all and wait until all are ready. If that fails, nothing is left."""
        try:
            for namespace in self.namespaces.values():
                namespace.make()
            devices = [self._child(f"device-{node.name}", self._device_command(node), _DEVICE) for node in self.nodes]
            for child in devices:
                child.start()
            for member in self.etcd.members if self._proxied else ():
                member.peer_url = f"http://{self._link('peers', member.name, member.peer_endpoint)}"
            self.etcd.start()
            others = [
                self._child("history", self._history_command(), _HISTORY),
                *(self._child(f"replica{i}", self._replica_command(i), _REPLICA) for i in self._replicas),
                *(
                    self._child(f"agent-{node.name}", self._agent_command(node, port), _AGENT)
                    for node, port in zip(self.nodes, self._agent_ports, strict=True)
                ),
            ]
            wait_all_ready(devices, READY_SECONDS)
            for child in others:
                child.start()
            wait_all_ready(others, READY_SECONDS)
            if self.group:
                self.put_group(self.group, self.nodes, self._policy)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kill all that is left of it. Twice is once."""
        with contextlib.ExitStack() as every:
            if self._temporary:
                every.callback(shutil.rmtree, self.folder, ignore_errors=True)
            every.callback(shutil.rmtree, self._sockets, ignore_errors=True)
            every.callback(self._ports.close)
            for namespace in self.namespaces.values():
                every.callback(namespace.remove)
            for link in self.links.values():
                every.callback(link.close)
            every.callback(self.etcd.stop)
            # Called in reverse order: jobs, agents, replicas, history, devices.
            for child in self._children.values():
                every.callback(child.kill)

    def keep(self) -> None:
        """Do not remove the folder at the end."""
        self._temporary = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --------------------------------------------------------------------------------------------- its processes

    @property
    def names(self) -> tuple[str, ...]:
        """Of all processes."""
        return (*(member.name for member in self.etcd.members), *self._children)

    def mark(self, what: str) -> None:
        """Note that this is done to it now: it is drawn in the timeline."""
        self.marks.append(Mark(time.monotonic_ns(), what))

    def pid(self, name: str) -> int | None:
        """None while it does not run."""
        return self._named(name).pid

    def log(self, name: str) -> Path:
        """The file with what it has said."""
        member = next((one for one in self.etcd.members if one.name == name), None)
        return member.log if member is not None else self._children[name].log

    def kill(self, name: str) -> None:
        """SIGKILL; returns when it is gone."""
        self.mark(f"SIGKILL {name}")
        self._named(name).kill()

    def stop(self, name: str) -> None:
        """SIGTERM, after 30 s SIGKILL; returns when it is gone."""
        self.mark(f"SIGTERM {name}")
        self._named(name).end(signal.SIGTERM, _STOP_SECONDS)

    def freeze(self, name: str) -> None:
        """SIGSTOP: its sockets stay open, nobody answers."""
        self.mark(f"SIGSTOP {name}")
        self._named(name).freeze()

    def thaw(self, name: str) -> None:
        """SIGCONT."""
        self.mark(f"SIGCONT {name}")
        self._named(name).thaw()

    def restart(self, name: str, *, environment: Mapping[str, str] | None = None, wait: bool = True) -> None:
        """Start one that has ended: same command, ports and state. ``environment`` replaces what was added before."""
        self.mark(f"start {name}")
        named = self._named(name)
        if name in self.jobs:
            self.jobs[name].born_again()
        if isinstance(named, Child):
            if environment is not None:
                named.environment = {**self._common, **environment}
            named.start()
            if wait:
                named.wait_ready(READY_SECONDS)
        elif isinstance(named, Member):
            self.etcd.restart(named.index, wait=wait)

    def _named(self, name: str) -> Named:
        for index, member in enumerate(self.etcd.members):
            if member.name == name:
                return Member(self.etcd, index)
        return self._children[name]

    def _child(self, name: str, command: Sequence[str], ready: str) -> Child:
        child = Child(name, command, self.folder / f"{name}.log", environment=self._added(name), ready=ready)
        self._children[name] = child
        return child

    # ------------------------------------------------------------------------------------------------- jobs

    def start_job(
        self, name: str, *, rhythm: Rhythm | None = None, seed: int = 0, ttl: float = 10.0, groups: Sequence[str] = ()
    ) -> JobProcess:
        """Start a job and wait until it has a session. It rests until it is told to run.

        ``groups``: its turns are in all of them at once, its workers on all their nodes; none: the world's own.
        """
        groups = tuple(groups) or (self.group,)
        rhythm = rhythm or Rhythm()
        command = ["-m", "chaos.dev.job", "--seed", str(seed)]
        for group in groups:
            command += ["--group", group]
        for node in dict.fromkeys(node for group in groups for node in self.groups[group]):
            command += ["--place", ",".join((str(node.socket), *node.devices))]
        for option in ("busy", "idle", "spread", "kernel", "bytes"):
            command += [f"--{option}", str(getattr(rhythm, option))]
        environment = {
            "TIMESLICE_ENDPOINTS": ",".join(self._endpoints_for(name)),
            "TIMESLICE_JOB_ID": name,
            # A worker's group is that of its devices; where there is one, it is said.
            **({"TIMESLICE_GROUP": groups[0]} if len(groups) == 1 else {}),
            "TIMESLICE_TTL": str(ttl),
            **self._added(name),
        }
        job = JobProcess(name, command, self.folder / f"{name}.log", environment, groups)
        self._children[name] = job.child
        self.jobs[name] = job
        job.child.start()
        job.child.wait_ready(READY_SECONDS)
        return job

    # ---------------------------------------------------------------------------------- the public API, and evidence

    @contextlib.contextmanager
    def coordinator(self, replica: int = 0) -> Iterator[coordinator_pb2_grpc.CoordinatorStub]:
        """A replica's service."""
        with grpc.insecure_channel(self.endpoints[replica]) as channel:
            yield coordinator_pb2_grpc.CoordinatorStub(channel)

    def put_group(self, name: str, nodes: Sequence[Node], policy: records_pb2.Policy | None = None) -> None:
        """Make or change a group, with all devices of these nodes. Raises grpc.RpcError."""
        devices = [records_pb2.NodeDevices(node=node.name, devices=node.devices) for node in nodes]
        with self.coordinator() as stub:
            stub.PutGroup(
                coordinator_pb2.PutGroupRequest(name=name, nodes=devices, policy=policy), timeout=_CALL_SECONDS
            )
        self.groups[name] = tuple(nodes)

    def history(self) -> list[history.Recorded]:
        """Each record of each turn so far, in order."""
        return history.read(self._history)

    def events(self, node: Node) -> list[devicelog.Event]:
        """What the devices of a node have logged so far: the evidence."""
        return devicelog.read(node.log)

    # ---------------------------------------------------------------------------------------------- commands

    @property
    def _replicas(self) -> range:
        return range(len(self.endpoints))

    @property
    def _common(self) -> dict[str, str]:
        """The environment of all that has failpoints."""
        return {"TIMESLICE_FAILPOINTS": f"@{self.failpoints}"} if self.failpoints else {}

    def _added(self, name: str) -> dict[str, str]:
        return {**self._common, **self._environment.get(name, {})}

    def _etcd_for(self, name: str) -> str:
        """etcd's members, as this process is to reach them."""
        return ",".join(self._link(name, member.name, member.endpoint) for member in self.etcd.members)

    def _endpoints_for(self, job: str) -> list[str]:
        """The replicas, as this job is to reach them."""
        return [self._link(job, f"replica{index}", endpoint) for index, endpoint in enumerate(self.endpoints)]

    def _link(self, source: str, target: str, endpoint: str) -> str:
        """Where ``source`` finds ``target``: at ``endpoint``, or at a proxy before it."""
        if not self._proxied:
            return endpoint
        host = self.namespaces[source].here if source in self.namespaces else _HERE
        link = self.links[source, target] = Link(f"{source} and {target}", endpoint, host=host)
        link.start()
        return link.endpoint

    def _device_command(self, node: Node) -> list[str]:
        shape = self.shape
        return [
            *("-m", "nodeagent.backends.sim.device", "--socket", str(node.socket), "--log", str(node.log)),
            *("--devices", str(shape.devices), "--prefix", f"SIM-{node.name}-", "--capacity", str(shape.capacity)),
            *("--bandwidth", str(shape.bandwidth), "--latency", str(shape.latency)),
        ]

    def _replica_command(self, index: int) -> list[str]:
        name = f"replica{index}"
        where = ["-m", "chaos.apart", self.namespaces[name].name] if name in self.namespaces else []
        return [*where, "-m", "coordinator", "--etcd", self._etcd_for(name), "--listen", self.endpoints[index]]

    def _agent_command(self, node: Node, port: int) -> list[str]:
        return [
            *(
                *self._agent,
                "--node",
                node.name,
                "--etcd",
                self._etcd_for(f"agent-{node.name}"),
                "--listen",
                f"127.0.0.1:{port}",
            ),
            *("--backend", "sim", "--sim-socket", str(node.socket)),
            *("--state-dir", str(self.folder / f"state-{node.name}"), "--host-memory", str(_HOST_MEMORY)),
        ]

    def _history_command(self) -> list[str]:
        return ["-m", "chaos.history", "--etcd", ",".join(self.etcd.endpoints), "--out", str(self._history)]
