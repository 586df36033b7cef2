# SPDX-License-Identifier: Apache-2.0
"""`timeslice doctor`: each complaint comes where it should, and a sound system has none that is bad."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from coordinator.doctor import Facts, Finding, Level, examine
from coordinator.picture import Picture
from ledger.codec import VERSION, encode
from ledger.embedded import EtcdCluster
from ledger.etcd import EtcdClient, KeyValue
from ledger.etcd.errors import QuotaExceeded, Unavailable
from ledger.etcd.records import Alarm, AlarmType, Header, Member, MemberStatus
from ledger.keys import Keys
from ledger.records import (
    Agent,
    Blocked,
    Claim,
    Compaction,
    Device,
    Drain,
    GroupSpec,
    Health,
    Job,
    NodeDevices,
    Phase,
    Pinned,
    Replica,
    Turn,
)
from ledger.view import Change, Changes
from tests.coordinator.serve.world import World
from tests.support.etcd_source import TestEtcd
from tests.support.etcdctl import etcdctl

KEYS = Keys("/t/")
SPEC = GroupSpec(nodes=(NodeDevices("n0", ("d0",)), NodeDevices("n1", ("d0",))))
TURN = Turn(phase=Phase.IDLE, nodes=("n0", "n1"), generation=7)
STATUS = MemberStatus(Header(1, 2, 3, 4), "3.5.33", 1_000, 1_000, 2, (), is_learner=False)
GONE = Unavailable("connection refused", ambiguous=False)

LEDGER: dict[bytes, Any] = {
    KEYS.spec("g"): SPEC,
    KEYS.turn("g"): TURN,
    KEYS.agent("n0"): Agent(devices=(Device("d0"),)),
    KEYS.agent("n1"): Agent(devices=(Device("d0"),)),
    KEYS.claim("n0", "d0"): Claim(group="g"),
    KEYS.claim("n1", "d0"): Claim(group="g"),
    KEYS.replica("r1"): Replica(address="h:1", record_version=VERSION),
    KEYS.compaction(): Compaction(revision=1),
}


def picture(changed: Mapping[bytes, Any] | None = None) -> Picture:
    """The sound ledger with some records changed; bytes stand for themselves, None for a key that is not there."""
    records = {**LEDGER, **(changed or {})}
    found = Picture(KEYS)
    kvs = [
        Change(key, KeyValue(key, value if isinstance(value, bytes) else encode(value), 7, 7, 1, 0))
        for key, value in records.items()
        if value is not None
    ]
    found.take(Changes(9, tuple(kvs)))
    return found


def facts(**changes: Any) -> Facts:
    members = tuple(Member(number, f"m{number}", (), (), is_learner=False) for number in range(3))
    sound = Facts({"h:2379": STATUS}, members, (), 1.0, picture())
    return replace(sound, **changes)


def ledger(key: bytes, value: Any) -> Facts:
    return facts(picture=picture({key: value}))


def test_a_sound_system_has_nothing_but_good_findings() -> None:
    assert {one.level for one in examine(facts())} == {Level.OK}


def status(**changes: Any) -> Facts:
    return facts(statuses={"h:2379": structs.replace(STATUS, **changes)})


GIB = 1024**3
COMPLAINTS: list[tuple[str, Facts, Level, str]] = [
    ("no endpoint answers", facts(statuses={"h:2379": GONE}), Level.BAD, "does not answer"),
    ("one of two answers", facts(statuses={"h:1": STATUS, "h:2": GONE}), Level.WARNING, "does not answer"),
    ("a version that corrupts data", status(version="3.5.1"), Level.BAD, "corrupt data"),
    ("a version for development", status(version="3.5.16"), Level.WARNING, "revoked lease"),
    ("a version that is none", status(version="main"), Level.WARNING, "cannot be read"),
    ("no leader", status(leader=0), Level.BAD, "no leader"),
    ("a member complains", status(errors=("disk",)), Level.WARNING, "disk"),
    ("nearly at the quota", status(db_size=2 * GIB, db_size_in_use=2 * GIB), Level.WARNING, "of 2,048.0 MiB"),
    ("much of it free", status(db_size=2 * GIB, db_size_in_use=GIB // 2), Level.WARNING, "512.0 MiB in use"),
    ("a smaller quota", replace(facts(), quota_bytes=1_100), Level.WARNING, "allowed"),
    (
        "two clusters",
        facts(statuses={"h:1": STATUS, "h:2": structs.replace(STATUS, header=Header(9, 2, 3, 4))}),
        Level.BAD,
        "2 clusters",
    ),
    ("no majority", facts(took_ms=GONE), Level.BAD, "No majority"),
    ("a slow majority", facts(took_ms=250.0), Level.WARNING, "250 ms"),
    ("one member", facts(members=(Member(1, "m", (), (), is_learner=False),)), Level.WARNING, "1 voting member."),
    ("an alarm", facts(alarms=(Alarm(0xAB, AlarmType.NOSPACE),)), Level.BAD, "ab raised the alarm NOSPACE"),
    ("alarms unknown", facts(alarms=GONE), Level.BAD, "alarms cannot be read"),
    ("the ledger cannot be read", facts(picture=GONE), Level.BAD, "cannot be read"),
    ("no coordinator", ledger(KEYS.replica("r1"), None), Level.BAD, "None is registered"),
    ("another version", ledger(KEYS.replica("r2"), Replica(record_version=9)), Level.WARNING, "version 9"),
    ("nobody compacts", ledger(KEYS.compaction(), None), Level.WARNING, "compacts"),
    ("a note that cannot be read", ledger(KEYS.compaction(), b"?"), Level.BAD, "cannot be read"),
    ("an agent is away", ledger(KEYS.agent("n1"), None), Level.WARNING, "agent is away"),
    ("an agent is not ready", ledger(KEYS.agent("n1"), Agent(capabilities=("x not ready: y",))), Level.WARNING, "y"),
    (
        "one device, two agents of one machine",
        facts(picture=picture({KEYS.agent(one): Agent(boot_id="b", devices=(Device("d0"),)) for one in ("n0", "n1")})),
        Level.BAD,
        "served by the agents of n0 and n1",
    ),
    ("a node is drained", ledger(KEYS.drain("n1"), Drain(why="fans")), Level.WARNING, "fans"),
    ("a malformed record", ledger(KEYS.turn("g"), b"?"), Level.BAD, "cannot be read"),
    ("a newer record", ledger(KEYS.turn("g"), b'{"version":"9"}'), Level.BAD, "version 9"),
    (
        "blocked",
        ledger(KEYS.turn("g"), structs.replace(TURN, blocked=Blocked("memory is full", "n1"))),
        Level.WARNING,
        "memory is full",
    ),
    ("pinned", ledger(KEYS.turn("g"), structs.replace(TURN, pinned=Pinned("a", "no room"))), Level.WARNING, "no room"),
    ("paused", ledger(KEYS.turn("g"), structs.replace(TURN, paused=True)), Level.WARNING, "paused"),
    (
        "a dropped node",
        ledger(KEYS.turn("g"), structs.replace(TURN, nodes=("n0",))),
        Level.WARNING,
        "goes on without n1",
    ),
    (
        "a quarantined job",
        ledger(KEYS.job("g", "a"), Job(health=Health.QUARANTINED, why="bad page")),
        Level.WARNING,
        "bad page",
    ),
]


@pytest.mark.parametrize(("of", "level", "said"), [one[1:] for one in COMPLAINTS], ids=[one[0] for one in COMPLAINTS])
def test_what_is_wrong_is_said_with_what_to_do(of: Facts, level: Level, said: str) -> None:
    found: list[Finding] = [one for one in examine(of) if one.level is not Level.OK]
    (complaint,) = [one for one in found if said in one.said]
    assert complaint.level is level
    assert complaint.next_step
    assert complaint.next_step not in complaint.said
    if level is Level.WARNING:
        assert all(one.level is Level.WARNING for one in found)


# ------------------------------------------------------------------------------------------------ on a real etcd


def doctor(endpoints: tuple[str, ...], prefix: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tsclient.cli.main", "doctor", "--etcd", ",".join(endpoints), "--prefix", prefix]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60)


def said_of(done: subprocess.CompletedProcess[str]) -> list[tuple[str, str]]:
    return [(one["level"], one["said"]) for one in json.loads(done.stdout)["findings"]]


@pytest.fixture
async def world(etcd: TestEtcd, prefix: bytes) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        yield World(etcd.endpoints, prefix.decode(), stack)


async def test_a_system_that_works_is_sound(world: World) -> None:
    await world.group(await world.replica())
    shown = await asyncio.to_thread(doctor, tuple(world.endpoints), world.prefix)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "group g" in shown.stdout and "0 bad" in shown.stdout
    told = await asyncio.to_thread(doctor, tuple(world.endpoints), world.prefix, "-o", "json")
    assert json.loads(told.stdout)["sound"] is True
    assert ("ok", "No alarms.") in said_of(told)


async def test_a_group_that_cannot_be_read_is_told_by_the_exit_status(world: World) -> None:
    await world.group(await world.replica())
    await (await world.etcd()).put(world.keys.turn("g"), b"nonsense")
    told = await asyncio.to_thread(doctor, tuple(world.endpoints), world.prefix, "-o", "json")
    assert told.returncode == 1
    assert any(level == "bad" and "cannot be read" in said for level, said in said_of(told))


def test_an_etcd_that_is_not_there(tmp_path: Any) -> None:
    told = doctor(("127.0.0.1:1",), "/t/", "-o", "json")
    assert told.returncode == 1
    assert ("bad", "None is registered.") not in said_of(told), "what is not known is not said"
    assert doctor(("no endpoint",), "/t/").returncode == 2


async def fill(cluster: EtcdCluster) -> None:
    async with EtcdClient(cluster.endpoints, timeout=30) as client:
        for number in range(40):
            await client.put(b"/x/%d" % number, b"x" * 100_000, idempotent=True)


async def test_an_alarm_and_a_lost_majority_are_seen(etcd_cluster: Callable[..., EtcdCluster]) -> None:
    cluster = etcd_cluster(3, options=("--quota-backend-bytes", str(1 << 20)))
    with pytest.raises(QuotaExceeded):
        await fill(cluster)
    assert "NOSPACE" in etcdctl(cluster.endpoints, "alarm", "list")
    told = await asyncio.to_thread(doctor, cluster.endpoints, "/t/", "-o", "json", "--quota-bytes", str(1 << 20))
    assert any(level == "bad" and "NOSPACE" in said for level, said in said_of(told))
    assert any(level == "warning" and "allowed" in said for level, said in said_of(told))
    for number in (0, 1):
        cluster.kill(number)
    told = await asyncio.to_thread(doctor, cluster.endpoints, "/t/", "-o", "json")
    found = said_of(told)
    assert told.returncode == 1
    assert sum("does not answer" in said for level, said in found if level == "warning") == 2
    assert any(level == "bad" and "No majority" in said for level, said in found)
