# SPDX-License-Identifier: Apache-2.0
"""The live view against a real etcd that is compacted, killed, frozen, restored and cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import ledger.view
from ledger.embedded import EtcdCluster
from ledger.etcd import EtcdClient
from ledger.etcd.errors import Unavailable
from ledger.view import Changes, LedgerView
from tests.support.etcd_source import TestEtcd
from tests.support.etcdctl import etcdctl, restore
from tests.support.proxy import Proxy
from tests.support.until import until

DEADLINE = 60.0


class Copy:
    """What a listener has been told, applied to a dictionary, and every revision in the order told."""

    def __init__(self) -> None:
        self.keys: dict[bytes, bytes] = {}
        self.revisions: list[int] = []
        self.restarted = 0

    def take(self, changes: Changes) -> None:
        self.revisions.append(changes.revision)
        self.restarted += changes.restarted
        for change in changes.changes:
            if change.kv is None:
                self.keys.pop(change.key, None)
            else:
                self.keys[change.key] = change.kv.value


async def stored(client: EtcdClient, prefix: bytes) -> dict[bytes, bytes]:
    return {kv.key: kv.value for kv in await client.get_prefix(prefix)}


async def test_it_lists_then_follows(etcd: TestEtcd, prefix: bytes) -> None:
    async with EtcdClient(etcd.endpoints) as client:
        await client.put(prefix + b"old", b"1")
        copy = Copy()
        view = LedgerView(client, prefix, copy.take)
        await view.start(DEADLINE)
        assert copy.keys == {prefix + b"old": b"1"}
        await client.put(prefix + b"new", b"2")
        last = await client.delete(prefix + b"old")
        await view.reached(last.revision, DEADLINE)
        assert copy.keys == {prefix + b"new": b"2"}
        assert view.live
        await view.close()
        assert not view.live


async def test_who_writes_a_key_has_the_answer_before_its_change_is_told(
    etcd: TestEtcd, prefix: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger.view, "ANSWER_FIRST", DEADLINE)
    async with EtcdClient(etcd.endpoints) as client:
        copy, other = Copy(), Copy()
        view, beside = LedgerView(client, prefix, copy.take), LedgerView(client, prefix, other.take)
        await asyncio.gather(view.start(DEADLINE), beside.start(DEADLINE))
        for number in range(10):
            with view.writing(prefix + b"turn"):
                await client.put(prefix + b"turn", str(number).encode())
                last = await client.put(prefix + b"later", str(number).encode())
                await beside.reached(last.revision, DEADLINE)
                assert copy.keys.get(prefix + b"turn") == (str(number - 1).encode() if number else None)
            await view.reached(last.revision, DEADLINE)
            assert copy.keys == other.keys
        assert copy.revisions == sorted(copy.revisions)
        await asyncio.gather(view.close(), beside.close())


async def test_an_answer_that_does_not_come_holds_up_a_view_for_a_moment_only(etcd: TestEtcd, prefix: bytes) -> None:
    async with EtcdClient(etcd.endpoints) as client:
        copy = Copy()
        view = LedgerView(client, prefix, copy.take)
        await view.start(DEADLINE)
        with view.writing(prefix + b"turn"):
            await client.put(prefix + b"turn", b"1")
            await until(lambda: copy.keys == {prefix + b"turn": b"1"})
        await view.close()


async def test_who_waits_for_a_revision_waits_for_nobodys_answer(
    etcd: TestEtcd, prefix: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger.view, "ANSWER_FIRST", DEADLINE)
    async with EtcdClient(etcd.endpoints) as client:
        copy = Copy()
        view = LedgerView(client, prefix, copy.take)
        await view.start(DEADLINE)
        for number in range(10):
            with view.writing(prefix + b"turn"):
                for key in (b"turn", b"later"):
                    last = await client.put(prefix + key, str(number).encode())
                await view.reached(last.revision, DEADLINE / 2)
                assert set(copy.keys.values()) == {str(number).encode()}
        await view.close()


@pytest.mark.parametrize("ends_by", ["another write", "who waits for it", "its answer", "time"])
async def test_what_was_written_rests_until_somebody_has_use_for_it(
    etcd: TestEtcd, prefix: bytes, monkeypatch: pytest.MonkeyPatch, ends_by: str
) -> None:
    monkeypatch.setattr(ledger.view, "ANSWER_FIRST", DEADLINE)
    monkeypatch.setattr(ledger.view, "AFTERWARDS", 0.1 if ends_by == "time" else DEADLINE)
    async with EtcdClient(etcd.endpoints) as client:
        copy, other = Copy(), Copy()
        view, beside = LedgerView(client, prefix, copy.take), LedgerView(client, prefix, other.take)
        await asyncio.gather(view.start(DEADLINE), beside.start(DEADLINE))
        with view.writing(prefix + b"turn") as write:
            last = await client.put(prefix + b"turn", b"1")
            await beside.reached(last.revision, DEADLINE)
            write.rests = True
        if ends_by != "time":
            last = await client.put(prefix + b"later", b"1")
            assert copy.keys == {}
        match ends_by:
            case "another write":
                with view.writing(prefix + b"other"):
                    await until(lambda: copy.keys == other.keys)
            case "who waits for it":
                await view.reached(last.revision, DEADLINE / 2)
            case "its answer":
                view.rest_no_longer()
                await until(lambda: copy.keys == other.keys)
            case _:
                await until(lambda: copy.keys == other.keys)
        assert copy.keys == other.keys
        await asyncio.gather(view.close(), beside.close())


async def test_what_a_listener_failed_to_take_for_somebodys_sake_is_told_again(etcd: TestEtcd, prefix: bytes) -> None:
    copy, faults = Copy(), 1

    def listener(changes: Changes) -> None:
        nonlocal faults
        if faults and any(change.key == prefix + b"turn" for change in changes.changes):
            faults -= 1
            raise RuntimeError("a fault of the listener")
        copy.take(changes)

    async with EtcdClient(etcd.endpoints) as client:
        view = LedgerView(client, prefix, listener)
        await view.start(DEADLINE)
        with view.writing(prefix + b"turn"):
            last = await client.put(prefix + b"turn", b"1")
            await view.reached(last.revision, DEADLINE)
            assert (copy.keys, faults) == ({prefix + b"turn": b"1"}, 0)
        await view.close()


async def test_l9_a_compaction_while_it_is_away_makes_it_list_again(
    etcd_cluster: Callable[..., EtcdCluster],
) -> None:
    cluster = etcd_cluster(1)
    async with (
        EtcdClient(cluster.endpoints) as writer,
        Proxy(cluster.endpoints[0]) as proxy,
        EtcdClient([proxy.endpoint]) as client,
    ):
        copy = Copy()
        view = LedgerView(client, b"/v/", copy.take)
        await writer.put(b"/v/gone", b"1")
        await view.start(DEADLINE)
        await proxy.refuse()
        await writer.delete(b"/v/gone")
        for number in range(20):
            last = await writer.put(b"/v/kept", str(number).encode())
        await writer.compact(last.revision)
        await proxy.heal()
        await view.reached(last.revision, DEADLINE)
        assert copy.keys == {b"/v/kept": b"19"}
        await view.close()


async def test_l10_a_silent_connection_is_noticed(etcd_cluster: Callable[..., EtcdCluster]) -> None:
    """Both directions go silent without a reset: only the transport's own pings can tell."""
    cluster = etcd_cluster(1)
    async with (
        EtcdClient(cluster.endpoints) as writer,
        Proxy(cluster.endpoints[0]) as proxy,
        EtcdClient([proxy.endpoint]) as client,
    ):
        copy = Copy()
        view = LedgerView(client, b"/v/", copy.take)
        await view.start(DEADLINE)
        proxy.silence()
        last = await writer.put(b"/v/a", b"1")
        await _until(lambda: not view.live)
        await proxy.heal()
        await view.reached(last.revision, DEADLINE)
        assert copy.keys == {b"/v/a": b"1"}
        await view.close()


async def test_a_break_is_counted_and_a_resync_is_none(etcd: TestEtcd, prefix: bytes) -> None:
    async with Proxy(etcd.endpoint) as proxy, EtcdClient([proxy.endpoint]) as client:
        view = LedgerView(client, prefix, Copy().take, resync=0.05)
        await view.start(DEADLINE)
        listed = client.requests["range"]
        await _until(lambda: client.requests["range"] > listed + 2)
        assert view.breaks == 0
        await view.close()
        view = LedgerView(client, prefix, Copy().take)
        await view.start(DEADLINE)
        for number in (1, 2):
            await proxy.refuse()
            await _until(lambda: not view.live)
            await proxy.heal()
            await _until(lambda: view.live)
            assert view.breaks >= number
        await view.close()


@pytest.mark.parametrize("fault", [RuntimeError("a fault of the listener"), Unavailable("as etcd's", ambiguous=False)])
async def test_what_a_listener_failed_to_take_is_told_again(
    etcd: TestEtcd, prefix: bytes, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    copy, faults = Copy(), 2

    def listener(changes: Changes) -> None:
        nonlocal faults
        if faults and any(change.key == prefix + b"bad" for change in changes.changes):
            faults -= 1
            raise fault
        copy.take(changes)

    async with EtcdClient(etcd.endpoints) as client:
        view = LedgerView(client, prefix, listener)
        await client.put(prefix + b"bad", b"1")
        await view.start(DEADLINE)
        assert copy.keys == {prefix + b"bad": b"1"}
        faults = 1
        await client.delete(prefix + b"bad")
        await _until(lambda: not faults)
        await client.put(prefix + b"good", b"2")
        await _until(lambda: prefix + b"good" in copy.keys)  # without a look, which would take what is held
        assert copy.keys == {prefix + b"good": b"2"}
        assert str(fault) in caplog.text
        await view.close()


async def test_nothing_is_lost_or_seen_twice_while_members_are_killed(etcd3members: EtcdCluster) -> None:
    cluster = etcd3members
    async with EtcdClient(cluster.endpoints) as writer, EtcdClient(cluster.endpoints) as client:
        copy = Copy()
        view = LedgerView(client, b"/v/", copy.take)
        await view.start(DEADLINE)
        for number in range(6):
            victim = number % 3
            await asyncio.to_thread(cluster.kill, victim)
            for step in range(10):
                last = await writer.put(b"/v/%d" % step, b"%d-%d" % (number, step), idempotent=True)
            await asyncio.to_thread(cluster.restart, victim)
        await view.reached(last.revision, DEADLINE)
        assert copy.keys == await stored(writer, b"/v/")
        assert copy.revisions == sorted(copy.revisions)
        await view.close()


async def test_a_resync_lists_again_and_tells_only_what_differs(etcd: TestEtcd, prefix: bytes) -> None:
    async with EtcdClient(etcd.endpoints) as client:
        copy = Copy()
        told = asyncio.Event()
        lists = 0

        def take(changes: Changes) -> None:
            nonlocal lists
            copy.take(changes)
            lists += not changes.changes
            if lists >= 3:
                told.set()

        await client.put(prefix + b"a", b"1")
        view = LedgerView(client, prefix, take, resync=0.05)
        await view.start(DEADLINE)
        async with asyncio.timeout(DEADLINE):
            await told.wait()
        assert copy.keys == {prefix + b"a": b"1"}
        await view.close()


async def test_rule_10_a_restored_store_makes_it_drop_what_it_knew(
    etcd_cluster: Callable[..., EtcdCluster], tmp_path: Path
) -> None:
    """A snapshot is taken, more is written, the snapshot is restored without a revision bump."""
    cluster = etcd_cluster(1, data_dir=tmp_path / "etcd")
    async with EtcdClient(cluster.endpoints) as client:
        copy = Copy()
        view = LedgerView(client, b"/v/", copy.take)
        await client.put(b"/v/then", b"1")
        snapshot = tmp_path / "snapshot.db"
        await asyncio.to_thread(etcdctl, cluster.endpoints, "snapshot", "save", str(snapshot))
        await view.start(DEADLINE)
        for number in range(5):
            last = await client.put(b"/v/later%d" % number, b"2")
        await view.reached(last.revision, DEADLINE)
        assert len(copy.keys) == 6
        await asyncio.to_thread(restore, cluster, snapshot)
        await _until(lambda: copy.restarted == 1)
        assert copy.keys == {b"/v/then": b"1"}
        assert view.revision < last.revision
        await view.close()


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.02)


async def test_start_says_when_no_etcd_answers() -> None:
    async with EtcdClient(["127.0.0.1:1"], timeout=0.5) as client:
        view = LedgerView(client, b"/v/", lambda _changes: None)
        try:
            await view.start(1.0)
        except TimeoutError:
            pass
        else:
            raise AssertionError("it started without an etcd")
        finally:
            await view.close()
