# SPDX-License-Identifier: Apache-2.0
"""Rule 32: a group that cannot be read is rebuilt from what its agents have said, and then goes on."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from coordinator.rebuild import CannotRebuild, GroupChanged, NothingToRebuild, rebuild_group
from coordinator.serve.server import CoordinatorServer
from ledger.codec import decode, encode
from ledger.errors import RecordTooNew
from ledger.etcd import EtcdClient, KeyValue
from ledger.keys import Keys
from ledger.records import (
    Ack,
    Claim,
    Directive,
    Drain,
    Evidence,
    GroupSpec,
    Health,
    Job,
    NodeDevices,
    Outcome,
    Phase,
    Process,
    Processes,
    ProcessState,
    Registered,
    Resident,
    ResidentKind,
    Ticket,
    Turn,
)
from tests.coordinator.serve.world import Client, World, until_seen
from tests.support.etcd_source import TestEtcd

NODE, DEVICE = "node-g", "dev-g"
BAD = b"{nonsense"
PARKED, NEW = Process("boot", 7, 70), Process("boot", 8, 80)


@pytest.fixture
async def world(etcd: TestEtcd, prefix: bytes) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        yield World(etcd.endpoints, prefix.decode(), stack)


async def held_and_wanted(world: World) -> tuple[CoordinatorServer, Client, Client]:
    """A group that a holds and b waits for."""
    replica = await world.replica()
    await world.group(replica)
    holder, waiter = await world.client(replica), await world.client(replica)
    await holder.acquire(1, "a")
    await holder.event("granted")
    await waiter.acquire(1, "b")
    await until_seen(replica, lambda: replica.engine.picture.queue("g").get("b") is not None)
    return replica, holder, waiter


def timeslice(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tsclient.cli.main", *arguments]
    command += ["--etcd", ",".join(world.endpoints), "--prefix", world.prefix]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


async def blocked(world: World, replica: CoordinatorServer, key: bytes, value: bytes = BAD) -> EtcdClient:
    etcd = await world.etcd()
    put = await etcd.put(key, value)
    await replica.engine.view.reached(put.revision, 30)
    assert replica.engine.picture.group_error("g") is not None
    return etcd


UNREADABLE: list[tuple[str, Callable[[Keys], bytes]]] = [
    ("turn", lambda keys: keys.turn("g")),
    ("spec", lambda keys: keys.spec("g")),
    ("directive", lambda keys: keys.directive(NODE, "g")),
    ("ack", lambda keys: keys.ack(NODE, "g")),
    ("processes", lambda keys: keys.processes(NODE, "g")),
    ("claim", lambda keys: keys.claim(NODE, DEVICE)),
]


@pytest.mark.parametrize(("what", "key"), UNREADABLE, ids=[what for what, _ in UNREADABLE])
async def test_rule_32_a_group_is_rebuilt_while_its_replica_runs_and_who_waits_keeps_its_place(
    world: World, what: str, key: Callable[[Keys], bytes]
) -> None:
    replica, holder, waiter = await held_and_wanted(world)
    before = replica.engine.picture.turn("g")
    assert before is not None
    place = replica.engine.picture.queue("g").get("b")
    await blocked(world, replica, key(world.keys))
    done = await asyncio.to_thread(timeslice, world, "repair", "g")
    assert done.returncode == 0, done.stderr
    assert "Group g goes on." in done.stdout and "The grant of a is over." in done.stdout, what
    assert (await holder.event("lost")).reason == "TURN_LOST"
    granted = (await waiter.event("granted")).grants[0]
    assert granted.token > before.value.token
    after, kept = replica.engine.picture.turn("g"), replica.engine.picture.queue("g").get("b")
    assert after is not None and after.value.epoch > before.value.epoch
    assert kept is not None and place is not None and kept.create == place.create
    assert replica.engine.picture.group_error("g") is None


async def test_rule_32_beside_the_turn_nothing_else_is_touched(world: World) -> None:
    """A waiter's ticket and a job's health say nothing about who is on."""
    replica, holder, _ = await held_and_wanted(world)
    turn = replica.engine.picture.turn("g")
    etcd = await blocked(world, replica, world.keys.job("g", "x"))
    lease = replica.engine.picture.queue("g").get("b")
    assert lease is not None
    await etcd.put(world.keys.ticket("g", "b"), BAD, lease=lease.lease)
    done = await asyncio.to_thread(timeslice, world, "repair", "g")
    assert done.returncode == 0, done.stderr
    await until_seen(replica, lambda: replica.engine.picture.group_error("g") is None)
    assert replica.engine.picture.turn("g") == turn
    job = await etcd.get(world.keys.job("g", "x"))
    assert job is not None and decode(Job, job.value).health is Health.QUARANTINED
    assert await etcd.get(world.keys.ticket("g", "b")) is None
    assert turn is not None
    await holder.give_back(1, "a", turn.value.token)
    await holder.event("yielded")


async def test_rule_32_a_dry_run_says_it_and_does_nothing(world: World) -> None:
    replica, *_ = await held_and_wanted(world)
    etcd = await blocked(world, replica, world.keys.turn("g"))
    done = await asyncio.to_thread(timeslice, world, "repair", "g", "--dry-run")
    assert done.returncode == 0 and "The turn is rebuilt" in done.stdout and "Nothing was changed" in done.stdout
    kv = await etcd.get(world.keys.turn("g"))
    assert kv is not None and kv.value == BAD


# ------------------------------------------------------------------------------------------------ without replicas


@pytest.fixture
async def store(etcd: TestEtcd, prefix: bytes) -> AsyncIterator[tuple[EtcdClient, Keys]]:
    """A group of two nodes, n0 and n1, in the middle of a switch."""
    keys = Keys(prefix.decode())
    async with EtcdClient(etcd.endpoints) as client:
        spec = GroupSpec(nodes=tuple(NodeDevices(node, ("d0",)) for node in ("n0", "n1")))
        await client.put(keys.spec("g"), encode(spec))
        await client.put(keys.turn("g"), encode(Turn(epoch=5, token=6, nodes=("n0", "n1"))))
        for node in ("n0", "n1"):
            await client.put(keys.claim(node, "d0"), encode(Claim(group="g")))
            await client.put(keys.directive(node, "g"), encode(Directive(epoch=5)))
        yield client, keys


async def read(client: EtcdClient, key: bytes, cls: type[Any]) -> Any:
    kv = await client.get(key)
    assert kv is not None
    return decode(cls, kv.value)


async def test_rule_32_epoch_and_token_are_above_all_that_anybody_has_seen(store: tuple[EtcdClient, Keys]) -> None:
    client, keys = store
    high = 1 << 40  # above any revision of this store: as after a restore
    await client.put(keys.ack("n1", "g"), encode(Ack(epoch=high, highest_epoch=high + 5)))
    lease = (await client.grant(600)).lease_id
    await client.put(keys.ticket("g", "a"), encode(Ticket(token=high + 7)), lease=lease)
    await client.put(keys.turn("g"), BAD)
    await rebuild_group(client, keys, "g")
    turn: Turn = await read(client, keys.turn("g"), Turn)
    assert (turn.epoch, turn.token) == (high + 6, high + 8)
    assert (turn.phase, turn.resident, turn.nodes) == (Phase.IDLE, Resident(ResidentKind.UNKNOWN), ("n0", "n1"))


async def test_rule_32_processes_are_those_that_were_answered_for_or_registered(
    store: tuple[EtcdClient, Keys],
) -> None:
    client, keys = store
    evidence = (Evidence("a", PARKED, ProcessState.PARKED, 99),)
    await client.put(keys.ack("n0", "g"), encode(Ack(outcome=Outcome.COMMITTED, evidence=evidence)))
    await client.put(keys.registered("n0", "g", "a"), encode(Registered(processes=(PARKED, NEW))))
    await client.put(keys.processes("n0", "g"), BAD)
    await rebuild_group(client, keys, "g")
    found: Processes = await read(client, keys.processes("n0", "g"), Processes)
    states = {one.process: (one.state, one.bytes) for one in found.of("a")}
    assert states == {PARKED: (ProcessState.PARKED, 99), NEW: (ProcessState.RUNNING, 0)}


async def test_rule_32_a_spec_is_rebuilt_from_the_claims(store: tuple[EtcdClient, Keys]) -> None:
    client, keys = store
    await client.put(keys.spec("g"), BAD)
    await rebuild_group(client, keys, "g")
    spec: GroupSpec = await read(client, keys.spec("g"), GroupSpec)
    assert spec == GroupSpec(nodes=(NodeDevices("n0", ("d0",)), NodeDevices("n1", ("d0",))))


async def test_rule_32_a_drained_node_stays_drained(store: tuple[EtcdClient, Keys]) -> None:
    client, keys = store
    await client.put(keys.drain("n1"), BAD)
    await rebuild_group(client, keys, "g")
    assert (await read(client, keys.drain("n1"), Drain)).why
    assert (await read(client, keys.turn("g"), Turn)).epoch == 5


async def test_rule_32_a_registration_that_is_on_no_lease_would_stand_in_its_agents_way_for_ever(
    store: tuple[EtcdClient, Keys],
) -> None:
    client, keys = store
    await client.put(keys.agent("n0"), BAD)
    turn = await client.get(keys.turn("g"))
    await rebuild_group(client, keys, "g")
    assert await client.get(keys.agent("n0")) is None
    assert await client.get(keys.turn("g")) == turn


@pytest.mark.parametrize("what", ["agent", "claim of two groups", "spec without claims"])
async def test_rule_32_what_nobody_else_knows_is_left_and_the_reader_told_what_to_do(
    store: tuple[EtcdClient, Keys], what: str
) -> None:
    client, keys = store
    match what:
        case "agent":
            await client.put(keys.agent("n0"), BAD, lease=(await client.grant(600)).lease_id)
        case "claim of two groups":
            other = GroupSpec(nodes=(NodeDevices("n0", ("d0",)),))
            await client.put(keys.spec("other"), encode(other))
            await client.put(keys.claim("n0", "d0"), BAD)
        case _:
            await client.delete_prefix(keys.root + b"nodes/")
            await client.put(keys.spec("g"), BAD)
    before = await everything(client, keys)
    with pytest.raises(CannotRebuild) as error:
        await rebuild_group(client, keys, "g")
    assert error.value.next_step
    assert await everything(client, keys) == before


async def test_rule_32_a_newer_record_is_no_business_of_this_version(store: tuple[EtcdClient, Keys]) -> None:
    client, keys = store
    await client.put(keys.turn("g"), encode(Turn(version=99)))
    await client.put(keys.ack("n0", "g"), BAD)
    before = await everything(client, keys)
    with pytest.raises(RecordTooNew):
        await rebuild_group(client, keys, "g")
    assert await everything(client, keys) == before


async def test_a_sound_group_is_left_alone(store: tuple[EtcdClient, Keys]) -> None:
    client, keys = store
    await client.put(keys.turn("other"), BAD)
    with pytest.raises(NothingToRebuild):
        await rebuild_group(client, keys, "g")


async def test_rule_32_a_record_that_has_changed_in_between_is_not_overwritten(
    store: tuple[EtcdClient, Keys], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, keys = store
    await client.put(keys.ack("n0", "g"), BAD)
    get_prefix = client.get_prefix

    async def then_changed(*arguments: Any, **more: Any) -> Any:
        listed = await get_prefix(*arguments, **more)
        await client.put(keys.ack("n0", "g"), encode(Ack(epoch=77)))
        return listed

    monkeypatch.setattr(client, "get_prefix", then_changed)
    with pytest.raises(GroupChanged):
        await rebuild_group(client, keys, "g")
    assert (await read(client, keys.ack("n0", "g"), Ack)).epoch == 77


async def everything(client: EtcdClient, keys: Keys) -> tuple[KeyValue, ...]:
    return (await client.get_prefix(keys.root)).kvs


def test_a_dry_run_of_a_restore_is_refused(world: World) -> None:
    assert timeslice(world, "repair", "--restored", "--dry-run").returncode == 2
