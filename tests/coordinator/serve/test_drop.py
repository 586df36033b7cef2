# SPDX-License-Identifier: Apache-2.0
"""Rule 23 on a real etcd: a group goes on without a node whose agent stays away, and takes it back later."""

from __future__ import annotations

import grpc
import pytest

from coordinator.serve import look
from coordinator.serve.server import CoordinatorServer
from ledger.codec import decode, encode
from ledger.records import (
    DirectiveKind,
    Health,
    Job,
    JobProcesses,
    Process,
    Processes,
    ProcessRecord,
    ResidentKind,
    TicketState,
    Turn,
)
from tests.coordinator.serve.world import World, idle_and_known, put_request, reason_of, state_of, until_seen
from timeslice_proto.v1 import coordinator_pb2, records_pb2

AWAY = 0.5
"""Seconds after which a node is dropped here."""


@pytest.mark.parametrize("replicas", [1, 2])
async def test_rule_23_a_node_that_stays_away_is_dropped_and_is_cleared_before_it_is_taken_back(
    world: World, replicas: int
) -> None:
    (replica, *_) = [await world.replica() for _ in range(replicas)]
    await world.agent("n0")
    leaves = await world.agent("n1", ("d1",))
    await until_seen(replica, lambda: len(replica.engine.picture.nodes()) == 2)
    wish = put_request("g", n0=["d0"], n1=["d1"])
    wish.policy.node_lost = records_pb2.NODE_LOST_POLICY_DROP
    wish.policy.drop_after_ms = round(AWAY * 1000)
    await (await world.stub(replica)).PutGroup(wish)
    await until_seen(replica, lambda: idle_and_known(replica, "g"))
    etcd = await world.etcd()
    parked = Processes(jobs=(JobProcesses("x", (ProcessRecord(Process("boot", 1, 1)),)),))
    await etcd.put(world.keys.processes("n1", "g"), encode(parked))

    await leaves.close()
    client = await world.client(replica)
    await client.acquire(1, "b")
    granted = await client.event("granted")

    turn = await etcd.get(world.keys.turn("g"))
    assert turn is not None and decode(Turn, turn.value).nodes == ("n0",)
    health = await etcd.get(world.keys.job("g", "x"))
    assert health is not None and decode(Job, health.value).health is Health.QUARANTINED
    assert state_of(replica, "b") is TicketState.GRANTED
    stub = await world.stub(replica)
    with pytest.raises(grpc.aio.AioRpcError, match="x had processes on n1") as refusal:
        await stub.Unquarantine(coordinator_pb2.UnquarantineRequest(group="g", job="x"))
    assert reason_of(refusal.value) == "NODE_DROPPED"
    await stub.Unquarantine(coordinator_pb2.UnquarantineRequest(group="g", job="x", force=True))
    health = await etcd.get(world.keys.job("g", "x"))
    assert health is not None and decode(Job, health.value).health is Health.OK, "an operator who insists"
    await etcd.put(world.keys.job("g", "x"), encode(Job(health=Health.QUARANTINED, why="again")))

    back = await world.agent("n1", ("d1",))
    await client.give_back(1, "b", granted.grants[0].token)
    await until_seen(replica, lambda: idle_and_known(replica, "g") and _nodes(replica) == ("n0", "n1"))
    first = back.seen[0]
    assert (first.kind, first.on, first.kill) == (DirectiveKind.COMMIT, "", True)
    assert [one.epoch for one in back.seen] == sorted(one.epoch for one in back.seen)
    kept = replica.engine.picture.turn("g")
    assert kept is not None and kept.value.resident is not None
    assert kept.value.resident.kind is ResidentKind.NOBODY, "a switch has shown who is on"
    await stub.Unquarantine(coordinator_pb2.UnquarantineRequest(group="g", job="x"))
    health = await etcd.get(world.keys.job("g", "x"))
    assert health is not None and decode(Job, health.value).health is Health.OK


async def test_rule_23_a_dropped_node_that_is_not_wanted_any_more_keeps_its_device_until_it_is_cleared(
    world: World,
) -> None:
    replica = await world.replica()
    await world.agent("n0")
    leaves = await world.agent("n1", ("d1",))
    await until_seen(replica, lambda: len(replica.engine.picture.nodes()) == 2)
    wish = put_request("g", n0=["d0"], n1=["d1"])
    wish.policy.node_lost = records_pb2.NODE_LOST_POLICY_DROP
    wish.policy.drop_after_ms = round(AWAY * 1000)
    stub = await world.stub(replica)
    await stub.PutGroup(wish)
    await until_seen(replica, lambda: idle_and_known(replica, "g"))
    await leaves.close()
    client = await world.client(replica)
    await client.acquire(1, "b")
    granted = await client.event("granted")
    await client.give_back(1, "b", granted.grants[0].token)

    smaller = put_request("g", n0=["d0"])
    smaller.policy.CopyFrom(wish.policy)
    await stub.PutGroup(smaller)
    await until_seen(replica, lambda: idle_and_known(replica, "g") and _adopted(replica))
    etcd = await world.etcd()
    claim, directive = world.keys.claim("n1", "d1"), world.keys.directive("n1", "g")
    assert await etcd.get(claim) is not None and await etcd.get(directive) is not None
    assert "n1" in look.group(replica.engine.picture, "g").note

    back = await world.agent("n1", ("d1",))
    await until_seen(replica, lambda: not replica.engine.picture.claims("n1"))
    assert [(one.kind, one.on) for one in back.seen] == [(DirectiveKind.COMMIT, "")]
    assert await etcd.get(directive) is None
    assert _nodes(replica) == ("n0",)


def _adopted(replica: CoordinatorServer) -> bool:
    turn, spec = replica.engine.picture.turn("g"), replica.engine.picture.spec("g")
    return turn is not None and spec is not None and turn.value.generation == spec.mod and len(spec.value.nodes) == 1


def _nodes(replica: CoordinatorServer) -> tuple[str, ...]:
    kept = replica.engine.picture.turn("g")
    return kept.value.nodes if kept else ()
