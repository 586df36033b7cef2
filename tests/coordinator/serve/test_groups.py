# SPDX-License-Identifier: Apache-2.0
"""Groups: made, changed, shown, watched, deleted; what an operator asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio
import pytest

from coordinator.apply.worker import GroupWorker
from coordinator.serve import groups
from ledger.codec import decode, encode
from ledger.records import (
    Claim,
    Drain,
    GroupSpec,
    Health,
    Job,
    JobProcesses,
    NodeDevices,
    Process,
    Processes,
    ProcessRecord,
    ProcessState,
    Turn,
)
from tests.coordinator.serve.world import World, info_of, put_request, refused, until_seen
from timeslice_proto.v1 import coordinator_pb2 as pb
from timeslice_proto.v1 import records_pb2


async def test_put_makes_spec_turn_and_claims_in_one_transaction(world: World) -> None:
    replica = await world.replica()
    stub, etcd = await world.stub(replica), await world.etcd()
    group = await stub.PutGroup(put_request("g", n0=["d0", "d1"], n1=["d2"]))
    assert [node.node for node in group.spec.nodes] == ["n0", "n1"]
    spec = await etcd.get(world.keys.spec("g"))
    turn = await etcd.get(world.keys.turn("g"))
    assert spec is not None and turn is not None
    for node, device in (("n0", "d0"), ("n0", "d1"), ("n1", "d2")):
        claim = await etcd.get(world.keys.claim(node, device))
        assert claim is not None and decode(Claim, claim.value).group == "g"
        assert claim.create_revision == spec.create_revision == turn.create_revision
    again = await stub.PutGroup(put_request("g", n0=["d0", "d1"], n1=["d2"]))
    kept = await etcd.get(world.keys.spec("g"))
    assert again.spec == group.spec and kept is not None and kept.mod_revision == spec.mod_revision


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (put_request("G", n0=["d0"]), "BAD_NAME"),
        (put_request("g", n_={}), "BAD_NAME"),
        (pb.PutGroupRequest(name="g"), "BAD_REQUEST"),
        (put_request("g", n0=[]), "BAD_REQUEST"),
        (put_request("g", n0=["d 0"]), "BAD_NAME"),
        (put_request("g", n0=["d0", "d0"]), "DEVICE_TWICE"),
        (put_request("g", n0=["d0"], n1=["d0"]), "DEVICE_TWICE"),
        (
            pb.PutGroupRequest(name="g", nodes=[records_pb2.NodeDevices(node="n", devices=[d]) for d in "ab"]),
            "NODE_TWICE",
        ),
        (pb.PutGroupRequest(name="g", nodes=put_request("g").nodes, policy={"prepare_ms": -1}), "BAD_REQUEST"),
        (put_request("g", n0=[f"d{number:0100}" for number in range(6_000)]), "TOO_LARGE"),
    ],
)
async def test_a_wish_that_cannot_be_right_is_refused(world: World, request_: Any, reason: str) -> None:
    stub = await world.stub(await world.replica())
    assert await refused(stub.PutGroup(request_)) == reason
    assert not (await (await world.etcd()).get_prefix(world.prefix.encode() + b"groups/")).kvs


async def test_a_request_above_a_mebibyte_is_refused_before_it_is_read(world: World) -> None:
    stub = await world.stub(await world.replica())
    huge = put_request("g", n0=[f"d{number:0100}" for number in range(20_000)])
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stub.PutGroup(huge)
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_device_that_the_agent_does_not_report_is_refused(world: World) -> None:
    replica = await world.replica()
    stub = await world.stub(replica)
    await world.agent("n0", ("d0",))
    await until_seen(replica, lambda: replica.engine.picture.nodes().get("n0") is not None)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stub.PutGroup(put_request("g", n0=["d0", "d9"]))
    info = info_of(error.value)
    assert (info.reason, info.metadata["device"]) == ("NO_SUCH_DEVICE", "d9")
    assert info.metadata["next_step"]


async def test_rule_11_one_device_of_two_agents_is_given_to_one_group(world: World) -> None:
    """Claims are by node; two agents of one machine, with a state folder each, do not see each other's locks."""
    replica = await world.replica()
    stub = await world.stub(replica)
    for node in ("n0", "n7"):
        await world.agent(node, ("d0",))
    await world.agent("n8", ("d8",))
    await until_seen(replica, lambda: len(replica.engine.picture.nodes()) == 3)
    await stub.PutGroup(put_request("g", n0=["d0"], n8=["d8"]))
    with pytest.raises(grpc.aio.AioRpcError, match="Device d0 of n7 is that of n0, which is taken") as error:
        await stub.PutGroup(put_request("y", n7=["d0"]))
    assert info_of(error.value).reason == "DEVICE_CLAIMED"


async def test_rule_11_one_device_claimed_by_two_groups_at_once_on_two_replicas(world: World) -> None:
    one, two = await world.replica(), await world.replica()
    stubs = [await world.stub(one), await world.stub(two)]
    for attempt in range(5):
        names = [f"a{attempt}", f"b{attempt}"]
        puts = [stub.PutGroup(put_request(name, n0=[f"d{attempt}"])) for name, stub in zip(names, stubs, strict=True)]
        done = await asyncio.gather(*puts, return_exceptions=True)
        losers = [error for error in done if isinstance(error, grpc.aio.AioRpcError)]
        assert [info_of(error).reason for error in losers] == ["DEVICE_CLAIMED"], done
        winner = next(one for one in done if isinstance(one, pb.Group)).name
        assert info_of(losers[0]).metadata["group"] == winner
        kvs = (await (await world.etcd()).get_prefix(world.prefix.encode() + b"groups/")).kvs
        left = {kv.key.decode().removeprefix(world.prefix).split("/")[1] for kv in kvs}
        assert left.intersection(names) == {winner}


async def test_more_devices_than_one_transaction_takes(world: World) -> None:
    replica = await world.replica()
    stub, etcd = await world.stub(replica), await world.etcd()
    devices = [f"d{number}" for number in range(250)]
    await stub.PutGroup(put_request("g", n0=devices))
    claims = (await etcd.get_prefix(world.keys.claim("n0", ""))).kvs
    assert {decode(Claim, kv.value).group for kv in claims} == {"g"} and len(claims) == 250


async def test_a_new_group_whose_later_device_is_taken_is_not_left_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await world.replica()
    stub, etcd = await world.stub(replica), await world.etcd()
    claim_rest = groups._claim_rest

    async def taken_in_between(*arguments: Any) -> None:
        await etcd.put(world.keys.claim("n0", "d249"), encode(Claim(group="other")))
        await claim_rest(*arguments)

    monkeypatch.setattr(groups, "_claim_rest", taken_in_between)
    devices = [f"d{number}" for number in range(250)]
    assert await refused(stub.PutGroup(put_request("g", n0=devices))) == "DEVICE_CLAIMED"
    await until_seen(replica, lambda: replica.engine.picture.spec("g") is None)
    claims = (await etcd.get_prefix(world.keys.claim("n0", ""))).kvs
    assert [decode(Claim, kv.value).group for kv in claims] == ["other"]


def then(monkeypatch: pytest.MonkeyPatch, write: Callable[[], Awaitable[object]]) -> None:
    """Have somebody else write between the first read of a group and what follows from it; nobody decides on it."""
    read, done = groups._read, False

    def decide_nothing(_worker: GroupWorker) -> None:
        pass

    monkeypatch.setattr(GroupWorker, "_step", decide_nothing)

    async def read_then_write(*arguments: Any) -> groups._Stored:
        nonlocal done
        stored = await read(*arguments)
        if not done:
            done = True
            await write()
        return stored

    monkeypatch.setattr(groups, "_read", read_then_write)


async def test_a_wish_does_not_undo_a_deletion_that_came_in_between(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await world.replica()
    stub, etcd = await world.stub(replica), await world.etcd()
    await stub.PutGroup(put_request("g", n0=["d0"]))
    deleting = GroupSpec(nodes=(NodeDevices("n0", ("d0",)),), deleting=True)
    then(monkeypatch, lambda: etcd.put(world.keys.spec("g"), encode(deleting)))
    assert await refused(stub.PutGroup(put_request("g", n0=["d0", "d1"]))) == "GROUP_DELETING"
    kv = await etcd.get(world.keys.spec("g"))
    assert kv is not None and decode(GroupSpec, kv.value).deleting


async def test_a_new_group_does_not_overwrite_a_turn_that_came_in_between(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await world.replica()
    stub, etcd = await world.stub(replica), await world.etcd()
    then(monkeypatch, lambda: etcd.put(world.keys.turn("g"), encode(Turn(token=10**12))))
    group = await stub.PutGroup(put_request("g", n0=["d0"]))
    assert group.turn.token == 10**12


async def test_delete_waits_for_nobody_and_names_what_would_be_left_behind(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    stub, etcd = await world.stub(replica), await world.etcd()
    parked = ProcessRecord(Process("boot", 5, 6), ProcessState.PARKED, bytes=10)
    record = Processes(jobs=(JobProcesses("old", (parked,)),))
    key = world.keys.processes("node-g", "g")
    await etcd.put(key, encode(record))
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stub.DeleteGroup(pb.DeleteGroupRequest(name="g"))
    assert (info_of(error.value).reason, info_of(error.value).metadata["jobs"]) == ("JOBS_PARKED", "old")
    kept = await etcd.get(world.keys.spec("g"))
    assert kept is not None and not decode(GroupSpec, kept.value).deleting
    await stub.DeleteGroup(pb.DeleteGroupRequest(name="g", force=True))
    await until_seen(replica, lambda: replica.engine.picture.spec("g") is None)
    assert await refused(stub.GetGroup(pb.GetGroupRequest(name="g"))) == "NO_SUCH_GROUP"
    assert await refused(stub.DeleteGroup(pb.DeleteGroupRequest(name="g"))) == "NO_SUCH_GROUP"


async def test_rule_10_numbers_grow_across_deletion_and_recreation(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    stub = await world.stub(replica)
    client = await world.client(replica)
    await client.acquire(1, "a")
    token = (await client.event("granted")).grants[0].token
    await client.give_back(1, "a", token)
    await client.event("yielded")
    before = (await stub.GetGroup(pb.GetGroupRequest(name="g"))).turn
    await stub.DeleteGroup(pb.DeleteGroupRequest(name="g", force=True))
    await until_seen(replica, lambda: replica.engine.picture.spec("g") is None)
    after = (await stub.PutGroup(put_request("g"))).turn
    assert after.token > before.token and after.epoch > before.epoch


async def test_what_there_is_is_shown(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    stub = await world.stub(replica)
    client, other = await world.client(replica), await world.client(replica)
    await client.acquire(1, "a")
    await client.event("granted")
    await other.acquire(1, "b")
    await other.event("queued")
    group = await stub.GetGroup(pb.GetGroupRequest(name="g"))
    assert group.turn.holder.job == "a" and group.waiting == 1 and group.revision > 0
    assert [entry.job for entry in group.queue] == ["a", "b"]
    assert [(node.node, node.alive) for node in group.nodes] == [("node-g", True)]
    brief = (await stub.ListGroups(pb.ListGroupsRequest())).groups
    assert [(one.name, one.waiting, len(one.queue)) for one in brief] == [("g", 1, 0)]
    jobs = (await stub.ListJobs(pb.ListJobsRequest(group="g"))).jobs
    assert [(one.job, one.holder, one.resident) for one in jobs] == [("a", True, True), ("b", False, False)]
    assert await refused(stub.ListJobs(pb.ListJobsRequest(group="none"))) == "NO_SUCH_GROUP"
    nodes = (await stub.ListNodes(pb.ListNodesRequest())).nodes
    assert [(one.node, one.alive, one.agent.devices[0].uuid) for one in nodes] == [("node-g", True, "dev-g")]


async def test_a_watch_shows_what_is_then_each_change_then_the_end(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    stub = await world.stub(replica)
    watch = stub.WatchGroups(pb.WatchGroupsRequest(names=["g"]))
    async with asyncio.timeout(30):
        assert not (await watch.read()).turn.paused
        await stub.PutGroup(put_request("other", n9=["d9"]))
        await stub.Pause(pb.PauseRequest(group="g"))
        while not (group := await watch.read()).turn.paused:
            pass
        assert group.name == "g"
        await stub.DeleteGroup(pb.DeleteGroupRequest(name="g", force=True))
        while not (group := await watch.read()).deleted:
            assert group.name == "g"
    watch.cancel()


async def test_pause_and_resume(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    stub = await world.stub(replica)
    client = await world.client(replica)
    assert (await stub.Pause(pb.PauseRequest(group="g"))).turn.paused
    await client.acquire(1, "a")
    await client.event("queued")
    assert not (await stub.Resume(pb.ResumeRequest(group="g"))).turn.paused
    await client.event("granted")
    assert await refused(stub.Pause(pb.PauseRequest(group="none"))) == "NO_SUCH_GROUP"


async def test_a_quarantined_job_is_refused_until_it_is_declared_sound(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    stub, client = await world.stub(replica), await world.client(replica)
    record = Job(health=Health.QUARANTINED, why="its restore failed")
    await (await world.etcd()).put(world.keys.job("g", "a"), encode(record))
    await client.acquire(1, "a")
    refusal = await client.event("refused")
    assert (refusal.reason, dict(refusal.metadata)) == ("JOB_QUARANTINED", {"group": "g", "job": "a"})
    await stub.Unquarantine(pb.UnquarantineRequest(group="g", job="a"))
    await client.acquire(2, "a")
    await client.event("granted")
    assert await refused(stub.Unquarantine(pb.UnquarantineRequest(group="g", job="zzz"))) == "NO_SUCH_JOB"


async def test_drain_and_undrain_of_a_node(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    stub, etcd = await world.stub(replica), await world.etcd()
    await stub.DrainNode(pb.DrainNodeRequest(node="node-g", why="new disks"))
    kv = await etcd.get(world.keys.drain("node-g"))
    assert kv is not None and decode(Drain, kv.value).why == "new disks"
    node = (await stub.ListNodes(pb.ListNodesRequest())).nodes[0]
    assert (node.draining, node.drain_why) == (True, "new disks")
    await stub.DrainNode(pb.DrainNodeRequest(node="node-g", undrain=True))
    assert not (await stub.ListNodes(pb.ListNodesRequest())).nodes[0].draining
    assert await refused(stub.DrainNode(pb.DrainNodeRequest(node="none"))) == "NO_SUCH_NODE"


async def test_rule_32_a_malformed_record_blocks_its_group_alone_and_is_never_overwritten(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    await world.group(replica, "h")
    stub, etcd, client = await world.stub(replica), await world.etcd(), await world.client(replica)
    for value, reason in ((b"{nonsense", "RECORD_MALFORMED"), (b'{"version":"99"}', "RECORD_TOO_NEW")):
        put = await etcd.put(world.keys.turn("g"), value)
        await replica.engine.view.reached(put.revision, 30)
        await client.acquire(1, "a")
        assert (await client.event("refused")).reason == reason
        assert await refused(stub.Pause(pb.PauseRequest(group="g"))) == reason
        assert await refused(stub.PutGroup(put_request("g"))) == reason
        shown = await stub.GetGroup(pb.GetGroupRequest(name="g"))
        assert shown.malformed and "record" in shown.note
        kv = await etcd.get(world.keys.turn("g"))
        assert kv is not None and kv.value == value
    await client.acquire(2, "a", "h")
    assert (await client.event("granted")).sequence == 2
