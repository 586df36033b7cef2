# SPDX-License-Identifier: Apache-2.0
"""Rule 32: a replica that meets a record of a later version stands by, and never writes what depends on it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.serve.server import CoordinatorServer
from ledger.codec import VERSION
from ledger.keys import Keys
from tests.coordinator.serve.world import PROCESS, Client, World, refused, until_seen
from timeslice_proto.v1 import coordinator_pb2 as pb

NODE, DEVICE = "node-g", "dev-g"
NEWER = f'{{"version":"{VERSION + 1}","flux":"capacitor"}}'.encode()

RECORDS: dict[str, Callable[[Keys], bytes]] = {
    "spec": lambda keys: keys.spec("g"),
    "turn": lambda keys: keys.turn("g"),
    "ticket": lambda keys: keys.ticket("g", "x"),
    "job": lambda keys: keys.job("g", "x"),
    "directive": lambda keys: keys.directive(NODE, "g"),
    "ack": lambda keys: keys.ack(NODE, "g"),
    "processes": lambda keys: keys.processes(NODE, "g"),
    "registered": lambda keys: keys.registered(NODE, "g", "x"),
    "claim": lambda keys: keys.claim(NODE, DEVICE),
    "agent": lambda keys: keys.agent(NODE),
    "drain": lambda keys: keys.drain(NODE),
}


async def of_the_group(world: World) -> dict[bytes, bytes]:
    """All of group g: its own keys and its node's."""
    etcd = await world.etcd()
    root = world.keys.root
    kvs = [kv for part in (b"groups/g/", b"nodes/node-g/") for kv in (await etcd.get_prefix(root + part)).kvs]
    return {kv.key: kv.value for kv in kvs}


async def a_turn_of(group: str, client: Client, sequence: int) -> None:
    await client.acquire(sequence, "z", group)
    granted = (await client.event("granted")).grants[0]
    await client.give_back(sequence, "z", granted.token, group)
    await client.event("yielded")


@pytest.mark.parametrize("what", RECORDS)
async def test_rule_32_nothing_is_decided_for_a_group_with_a_newer_record(world: World, what: str) -> None:
    """Its holder's session ends and a waiter is there: without that record there would be much to write."""
    replica = await world.replica()
    await world.group(replica)
    await world.group(replica, "h")
    holder, waiter = await world.client(replica), await world.client(replica)
    await holder.acquire(1, "a")
    await holder.event("granted")
    await waiter.acquire(1, "b")
    await until_seen(replica, lambda: replica.engine.picture.queue("g").get("b") is not None)
    etcd = await world.etcd()
    put = await etcd.put(RECORDS[what](world.keys), NEWER)
    await replica.engine.view.reached(put.revision, 30)
    await etcd.revoke(int(holder.session, 16))
    before = await of_the_group(world)
    for sequence in (2, 3):  # time enough: the replica goes on deciding for others
        await a_turn_of("h", waiter, sequence)
    assert await of_the_group(world) == before
    stub = await world.stub(replica)
    assert await refused(stub.Pause(pb.PauseRequest(group="g"))) == "RECORD_TOO_NEW"
    await waiter.acquire(9, "late")
    assert (await waiter.event("refused")).reason == "RECORD_TOO_NEW"
    assert await of_the_group(world) == before


@pytest.fixture
async def replica(world: World) -> CoordinatorServer:
    ready = await world.replica()
    await world.group(ready)
    return ready


async def test_rule_32_a_newer_session_is_left_to_newer_replicas(world: World, replica: CoordinatorServer) -> None:
    client = await world.client(replica)
    etcd, stub = await world.etcd(), await world.stub(replica)
    key = world.keys.session(client.session)
    await etcd.put(key, NEWER, ignore_lease=True)
    assert await client.reason() == "RECORD_TOO_NEW"
    assert not client.past, "it is not told that its session has ended"
    resumed = Client(stub)
    resume = pb.ResumeSession(session=client.session, secret=client.secret)
    await resumed.send(resume=resume)
    assert await resumed.reason() == "RECORD_TOO_NEW"
    session, secret = client.session, client.secret
    assert await refused(stub.Beat(pb.BeatRequest(session=session, secret=secret))) == "RECORD_TOO_NEW"
    assert await refused(stub.CloseSession(pb.CloseRequest(session=session, secret=secret))) == "RECORD_TOO_NEW"
    kv = await etcd.get(key)
    assert kv is not None and kv.value == NEWER and kv.lease == int(session, 16)


async def test_rule_32_what_is_written_as_a_whole_is_not_written_over_a_newer_record(
    world: World, replica: CoordinatorServer
) -> None:
    etcd, stub = await world.etcd(), await world.stub(replica)
    drain, registered = world.keys.drain(NODE), world.keys.registered(NODE, "g", "a")
    for key in (drain, registered):
        await etcd.put(key, NEWER)
    for undrain in (False, True):
        assert await refused(stub.DrainNode(pb.DrainNodeRequest(node=NODE, undrain=undrain))) == "RECORD_TOO_NEW"
    for processes in ([PROCESS], []):
        request = pb.RegisterProcessesRequest(group="g", job="a", node=NODE, processes=processes)
        assert await refused(stub.RegisterProcesses(request)) == "RECORD_TOO_NEW"
    for key in (drain, registered):
        kv = await etcd.get(key)
        assert kv is not None and kv.value == NEWER


async def test_a_replica_says_which_records_it_can_write(replica: CoordinatorServer) -> None:
    registered = replica.engine.picture.replicas()[replica.engine.replica_id]
    assert registered.value.record_version == VERSION
