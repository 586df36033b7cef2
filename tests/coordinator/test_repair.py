# SPDX-License-Identifier: Apache-2.0
"""Rule 10: after a restore of etcd nothing that was true then passes for true now."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.repair import ReplicasRunning, repair_restored
from ledger.codec import decode, encode
from ledger.embedded import EtcdCluster
from ledger.errors import RecordMalformed
from ledger.etcd import EtcdClient
from ledger.keys import Keys
from ledger.records import (
    Ended,
    GroupSpec,
    Holder,
    NodeDevices,
    Phase,
    Process,
    Replica,
    Resident,
    ResidentKind,
    Ticket,
    TicketState,
    Turn,
)
from tests.support.etcd_source import TestEtcd
from tests.support.etcdctl import etcdctl, restore

HELD = Turn(
    phase=Phase.HELD,
    epoch=10,
    token=11,
    holder=Holder("a", "01", Process("boot", 7, 7)),
    resident=Resident(ResidentKind.JOB, "a"),
    nodes=("n0",),
)


async def fill(client: EtcdClient, keys: Keys) -> int:
    """A group that is held by a, with b waiting; the lease of their session."""
    lease = (await client.grant(600)).lease_id
    await client.put(keys.spec("g"), encode(GroupSpec(nodes=(NodeDevices("n0", ("d0",)),))))
    await client.put(keys.turn("g"), encode(HELD))
    granted = Ticket(session="01", state=TicketState.GRANTED, token=11)
    await client.put(keys.ticket("g", "a"), encode(granted), lease=lease)
    await client.put(keys.ticket("g", "b"), encode(Ticket(session="01")), lease=lease)
    return lease


async def turn_of(client: EtcdClient, keys: Keys) -> Turn:
    kv = await client.get(keys.turn("g"))
    assert kv is not None
    return decode(Turn, kv.value)


async def test_rule_10_grants_go_residents_become_unknown_and_waiters_stay(etcd: TestEtcd, prefix: bytes) -> None:
    keys = Keys(prefix.decode())
    async with EtcdClient(etcd.endpoints) as client:
        await fill(client, keys)
        (done,) = (await repair_restored(client, keys)).repaired
        assert done.group == "g"
        turn = await turn_of(client, keys)
        assert turn.phase is Phase.IDLE
        assert turn.holder is None
        # Whose turn is taken back has lost it: its processes are for no later session.
        assert turn.resident == Resident(ResidentKind.UNKNOWN, "a", Ended.LOST, Process("boot", 7, 7))
        assert turn.epoch > HELD.epoch
        assert turn.token > HELD.token
        assert await client.get(keys.ticket("g", "a")) is None
        assert await client.get(keys.ticket("g", "b")) is not None


async def test_it_is_refused_while_a_replica_runs(etcd: TestEtcd, prefix: bytes) -> None:
    keys = Keys(prefix.decode())
    async with EtcdClient(etcd.endpoints) as client:
        await fill(client, keys)
        await client.put(keys.replica("r0"), encode(Replica(address="x")))
        with pytest.raises(ReplicasRunning, match="Stop them all"):
            await repair_restored(client, keys)
        assert await turn_of(client, keys) == HELD


async def test_a_malformed_record_is_never_overwritten_and_keeps_no_other_group_from_its_repair(
    etcd: TestEtcd, prefix: bytes
) -> None:
    keys = Keys(prefix.decode())
    async with EtcdClient(etcd.endpoints) as client:
        await fill(client, keys)
        await client.put(keys.turn("z"), encode(HELD))
        await client.put(keys.turn("g"), b"nonsense")
        done = await repair_restored(client, keys)
        assert [one.group for one in done.repaired] == ["z"]
        (error,) = done.unreadable
        assert isinstance(error, RecordMalformed)
        kv = await client.get(keys.turn("g"))
        assert kv is not None
        assert kv.value == b"nonsense"


async def test_rule_10_a_yield_that_the_snapshot_does_not_know_is_not_undone(
    etcd_cluster: Callable[..., EtcdCluster], tmp_path: Path
) -> None:
    """A holder yields after the snapshot; the restore brings its grant back, lease and all; the repair removes it."""
    cluster = etcd_cluster(1, data_dir=tmp_path / "etcd")
    keys = Keys("/t/")
    async with EtcdClient(cluster.endpoints) as client:
        lease = await fill(client, keys)
        snapshot = tmp_path / "snapshot.db"
        await asyncio.to_thread(etcdctl, cluster.endpoints, "snapshot", "save", str(snapshot))
        await client.delete(keys.ticket("g", "a"))
        before = (await client.put(keys.turn("g"), encode(Turn(epoch=10, token=11, yielded_token=11)))).revision
        bump = ("--bump-revision", "1000000", "--mark-compacted")
        await asyncio.to_thread(restore, cluster, snapshot, *bump)
    async with EtcdClient(cluster.endpoints) as client:
        assert await client.get(keys.ticket("g", "a")) is not None, "the restore brought no grant back"
        await client.beat(lease)  # its keepalive is confirmed all the same
        command = [sys.executable, "-m", "tsclient.cli.main", "repair", "--restored"]
        command += ["--etcd", ",".join(cluster.endpoints), "--prefix", "/t/"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "1 groups repaired" in done.stdout
        assert await client.get(keys.ticket("g", "a")) is None
        turn = await turn_of(client, keys)
        assert turn.token > before
        assert turn.epoch > before
