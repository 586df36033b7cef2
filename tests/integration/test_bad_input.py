# SPDX-License-Identifier: Apache-2.0
"""What should not be there: bad requests and bad records. Each gets its typed error; others go on and lose nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

import tsclient as ts
from chaos.plain import plain_session, reason_of
from chaos.processes import Child
from chaos.world import Node, Shape, World
from ledger.embedded import EtcdCluster
from ledger.keys import Keys
from tests.integration.load import Load
from tests.support.etcdctl import etcdctl
from timeslice_proto.v1 import coordinator_pb2 as pb
from timeslice_proto.v1 import records_pb2
from tsclient.errors import BadName, RecordUnusable

WITHIN = 60.0
KEYS = Keys()
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Scene:
    """A world with the groups ``demo``, in which jobs take turns all the time, and ``other``."""

    world: World
    load: Load


@pytest.fixture(scope="module")
def running() -> Iterator[Scene]:
    with World(replicas=2, nodes=2, shape=Shape(devices=8), group="") as world:
        for index, group in enumerate(("demo", "other")):
            _put(world, 0, group, *(_devices(node.name, node.devices[index]) for node in world.nodes))
        with Load(world.endpoints, "demo", ("a", "b")) as load:
            yield Scene(world, load)


@pytest.fixture
def scene(running: Scene) -> Iterator[Scene]:
    """After each test the others must go on."""
    running.load.goes_on()
    yield running
    running.load.goes_on()


def _devices(node: str, *devices: str) -> records_pb2.NodeDevices:
    return records_pb2.NodeDevices(node=node, devices=devices)


def _put(world: World, replica: int, group: str, *nodes: records_pb2.NodeDevices) -> str:
    """The reason of the refusal; "" if it was not refused."""
    with world.coordinator(replica) as stub:
        try:
            stub.PutGroup(pb.PutGroupRequest(name=group, nodes=nodes), timeout=WITHIN)
        except grpc.RpcError as error:
            return reason_of(error)
    return ""


def _groups(world: World) -> set[str]:
    """As etcd's own client sees them."""
    keys = etcdctl(world.etcd.endpoints, "get", "--prefix", "--keys-only", "/timeslice/groups/").split()
    return {key.split("/")[3] for key in keys}


# ------------------------------------------------------------------------------------------------ requests


@pytest.mark.parametrize(
    ("group", "job", "kind"),
    [
        pytest.param("nowhere", "c", ts.NoSuchGroup, id="a group that is not there"),
        pytest.param("Not/A/Name", "c", BadName, id="a group that cannot be"),
        pytest.param("demo", "c" * 64, BadName, id="a job with too long a name"),
        pytest.param("demo", "../turn", BadName, id="a job that would be another key"),
    ],
)
def test_a_bad_acquire_is_refused_and_the_session_goes_on(
    scene: Scene, group: str, job: str, kind: type[ts.TimesliceError]
) -> None:
    with ts.connect(scene.world.endpoints, job="c") as client:
        with pytest.raises(kind) as refused:
            client.acquire(group, job=job, timeout=WITHIN)
        assert refused.value.next_step
        client.acquire("demo", timeout=WITHIN).yield_()


@pytest.mark.parametrize(
    ("name", "nodes", "reason"),
    [
        pytest.param("UPPER", [_devices("n0", "SIM-n0-7")], "BAD_NAME", id="a bad name"),
        pytest.param("new", [_devices("no/de", "SIM-n0-7")], "BAD_NAME", id="a bad node"),
        pytest.param("new", [_devices("n0", "a b")], "BAD_NAME", id="a bad device"),
        pytest.param("new", [], "BAD_REQUEST", id="no nodes"),
        pytest.param("new", [_devices("n0", "SIM-n0-7"), _devices("n0", "SIM-n0-6")], "NODE_TWICE", id="a node twice"),
        pytest.param("new", [_devices("n0", "SIM-n0-7", "SIM-n0-7")], "DEVICE_TWICE", id="a device twice"),
        pytest.param("new", [_devices("n0", "SIM-n0-99")], "NO_SUCH_DEVICE", id="a device that is not there"),
        pytest.param("new", [_devices("n0", "SIM-n0-0")], "DEVICE_CLAIMED", id="another group's device"),
        pytest.param(
            "new", [_devices("n0", *(f"D-{i:0100}" for i in range(6_000)))], "TOO_LARGE", id="more than a record takes"
        ),
    ],
)
@pytest.mark.parametrize("replica", [0, 1])
def test_a_bad_group_is_refused_and_leaves_nothing(
    scene: Scene, name: str, nodes: list[records_pb2.NodeDevices], reason: str, replica: int
) -> None:
    before = _groups(scene.world)
    assert _put(scene.world, replica, name, *nodes) == reason
    assert _groups(scene.world) == before


def test_two_groups_claim_a_device_from_two_replicas_at_once_and_one_gets_it(scene: Scene) -> None:
    world = scene.world
    for index in range(2, 6):
        start = threading.Barrier(2)

        def claim(replica: int, index: int = index, start: threading.Barrier = start) -> str:
            start.wait(WITHIN)
            # Two nodes, in opposite orders: a loser must not keep the one that it got first.
            nodes = [_devices(node.name, node.devices[index]) for node in world.nodes]
            return _put(world, replica, f"claim-{index}-{replica}", *(nodes if replica else reversed(nodes)))

        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(claim, range(2)))
        assert sorted(answers) == ["", "DEVICE_CLAIMED"]
        winner = f"claim-{index}-{answers.index('')}"
        assert {group for group in _groups(world) if group.startswith(f"claim-{index}")} == {winner}
        for node in world.nodes:
            key = KEYS.claim(node.name, node.devices[index]).decode()
            assert f'"group":"{winner}"' in etcdctl(world.etcd.endpoints, "get", key)
        with ts.connect(world.endpoints, job="c") as client:
            client.acquire(winner, timeout=WITHIN).yield_()


def test_a_request_over_a_mebibyte_is_refused_and_the_connection_goes_on(scene: Scene) -> None:
    with scene.world.coordinator() as stub:
        session = plain_session(stub)
        acquire = pb.AcquireRequest(sequence=1, job="c", groups=["demo"], traceparent="x" * 2 * MIB)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Acquire(
                pb.AcquireCall(session=session.session, secret=session.secret, acquire=acquire), timeout=WITHIN
            )
        assert isinstance(refused.value, grpc.Call)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        beat = pb.BeatRequest(session=session.session, secret=session.secret, number=5)
        assert stub.Beat(beat, timeout=WITHIN).number == 5
        stub.CloseSession(pb.CloseRequest(session=session.session, secret=session.secret), timeout=WITHIN)


def test_a_second_agent_of_a_node_is_not_registered_and_obeys_nothing(scene: Scene, tmp_path: Path) -> None:
    world = scene.world
    node = world.nodes[0]
    before = _registration(world, node)
    second = Child(
        "second agent",
        # A state directory of its own, as on another machine: no OS lock tells it about the first.
        *_agent(world, node, tmp_path),
        ready=f"Node {node.name} is not registered",
    )
    second.start()
    try:
        second.wait_ready(WITHIN)
        scene.load.goes_on()
        assert second.pid is not None  # it says so, and goes on trying
        assert _registration(world, node) == before
    finally:
        second.kill()


def _registration(world: World, node: Node) -> object:
    """The agent's key: its value, revisions and lease."""
    return json.loads(etcdctl(world.etcd.endpoints, "get", "-w", "json", KEYS.agent(node.name).decode()))["kvs"]


def _agent(world: World, node: Node, folder: Path) -> tuple[list[str], Path]:
    """The command of an agent with that name, and its log."""
    command = ["-m", "nodeagent", "--node", node.name, "--etcd", ",".join(world.etcd.endpoints)]
    command += ["--backend", "sim", "--sim-socket", str(node.socket), "--state-dir", str(folder / "state")]
    return command, folder / "second.log"


# ------------------------------------------------------------------------------------------------ records


class Bad:
    """A record of the store that is replaced by something else, and put back."""

    def __init__(self, etcd: EtcdCluster, key: bytes) -> None:
        self._endpoints, self._key = etcd.endpoints, key.decode()
        self._before = self.value()

    def value(self) -> str:
        return etcdctl(self._endpoints, "get", "--print-value-only", self._key).removesuffix("\n")

    def put(self, value: str) -> None:
        etcdctl(self._endpoints, "put", self._key, value)

    def restore(self) -> None:
        if self._before:
            self.put(self._before)
        else:
            etcdctl(self._endpoints, "del", self._key)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("no JSON at all", id="no JSON"),
        pytest.param('{"version":"1","phase":"PHASE_OF_THE_MOON"}', id="an unknown phase"),
        pytest.param('{"version":"99"}', id="a newer version"),
    ],
)
def test_a_turn_that_cannot_be_read_blocks_its_group_and_keeps_every_place(scene: Scene, value: str) -> None:
    world = scene.world
    with ts.connect(world.endpoints, job="c") as holder, ts.connect(world.endpoints, job="d") as waiter:
        turn = holder.acquire("other", timeout=WITHIN)
        queued = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(waiter.acquire, "other", timeout=WITHIN, on_progress=lambda _: queued.set())
            assert queued.wait(WITHIN)
            bad = Bad(world.etcd, KEYS.turn("other"))
            bad.put(value)
            with ts.connect(world.endpoints, job="e") as late, pytest.raises(RecordUnusable) as refused:
                late.acquire("other", timeout=WITHIN)
            assert refused.value.next_step
            scene.load.goes_on()
            assert bad.value() == value  # never overwritten
            turn.check()
            assert not waiting.done()
            bad.restore()
            turn.yield_()
            waiting.result(WITHIN).yield_()


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(lambda: KEYS.ticket("other", "ghost"), id="a ticket"),
        pytest.param(lambda: KEYS.session("0123456789abcdef"), id="a session"),
        pytest.param(lambda: KEYS.replica("ghost"), id="a replica"),
        pytest.param(lambda: KEYS.directive("n1", "other"), id="a directive"),
        pytest.param(lambda: KEYS.ack("n1", "other"), id="an acknowledgement"),
        pytest.param(lambda: KEYS.processes("n1", "other"), id="a process record"),
        pytest.param(lambda: KEYS.agent("ghost"), id="an agent"),
        pytest.param(lambda: KEYS.root + b"groups/other/what-is-this", id="a key that nobody knows"),
    ],
)
def test_others_go_on_beside_any_record_that_cannot_be_read(scene: Scene, key: Callable[[], bytes]) -> None:
    bad = Bad(scene.world.etcd, key())
    bad.put("{{{ not a record")
    scene.load.goes_on()
    assert bad.value() == "{{{ not a record"
    bad.restore()
    with ts.connect(scene.world.endpoints, job="c") as client:
        client.acquire("other", timeout=WITHIN).yield_()
