# SPDX-License-Identifier: Apache-2.0
"""Watches: everything, in order, once; or an error."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest

from ledger.etcd import EtcdClient, EventType, Watch, WatchBatch
from ledger.etcd import watch as watch_module
from ledger.etcd.errors import Closed, ClusterChanged, Compacted, Unavailable
from ledger.etcd.txn import Delete, Put, absent
from tests.support.etcd_source import TestEtcd
from tests.support.metrics import metric
from tests.support.proxy import Proxy
from tests.support.until import until

DEADLINE = 30.0


async def following(watch: Watch) -> WatchBatch:
    async with asyncio.timeout(DEADLINE):
        return await anext(watch)


async def seen(watch: Watch, last: bytes) -> list[tuple[bytes, bytes]]:
    """Keys and values of all events up to the one with value `last`."""
    found: list[tuple[bytes, bytes]] = []
    async with asyncio.timeout(DEADLINE):
        async for batch in watch:
            found += [(event.kv.key, event.kv.value) for event in batch.events]
            if found and found[-1][1] == last:
                return found
    raise AssertionError("a watch never ends by itself")


async def dead(watch: Watch) -> None:
    """Wait until the watch has noticed that its connection is gone."""
    await until(lambda: not watch.live)


async def until_watchers(cluster, number: int) -> None:
    """Wait until the server has this number of watchers."""
    await until(lambda: metric(cluster.members[0], "etcd_debugging_mvcc_watcher_total") == number)


async def test_events_tell_what_happened(client: EtcdClient, prefix: bytes) -> None:
    async with client.watch(prefix, previous=True) as watch:
        assert watch.live
        await client.put(prefix[:-1] + b"0", b"not under the prefix")
        first = await client.put(prefix + b"a", b"1")
        both = await client.txn([], [Put(prefix + b"b", b"2"), Delete(prefix + b"a")])

        batch = await following(watch)
        (event,) = batch.events
        assert (event.type, event.kv.value, event.previous) == (EventType.PUT, b"1", None)
        assert batch.revision == event.kv.mod_revision == first.revision
        assert batch.header.cluster_id == first.header.cluster_id

        batch = await following(watch)
        put, deleted = batch.events
        assert (put.type, put.kv.key) == (EventType.PUT, prefix + b"b")
        assert (deleted.type, deleted.kv.key, deleted.kv.value) == (EventType.DELETE, prefix + b"a", b"")
        assert deleted.previous is not None
        assert deleted.previous.value == b"1"
        assert batch.revision == both.revision


async def test_a_list_and_a_watch_leave_no_gap(client: EtcdClient, prefix: bytes) -> None:
    await client.put(prefix + b"a", b"listed")
    listed = await client.get_prefix(prefix)
    await client.put(prefix + b"b", b"in between")
    async with client.watch(prefix, listed.revision + 1, cluster_id=listed.header.cluster_id) as watch:
        await client.put(prefix + b"c", b"after")
        assert await seen(watch, b"after") == [(prefix + b"b", b"in between"), (prefix + b"c", b"after")]


async def test_one_key_alone(client: EtcdClient, prefix: bytes) -> None:
    async with client.watch(prefix + b"a", exact=True) as watch:
        await client.put(prefix + b"aa", b"other")
        await client.put(prefix + b"a", b"last")
        assert await seen(watch, b"last") == [(prefix + b"a", b"last")]


async def test_giving_up_a_wait_loses_nothing(client: EtcdClient, prefix: bytes) -> None:
    values: list[bytes] = []
    async with client.watch(prefix) as watch:
        for number in range(20):
            waiting = asyncio.create_task(anext(watch))
            await client.put(prefix, b"%d" % number)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                values += [event.kv.value for event in (await waiting).events]
        await client.put(prefix, b"last")
        values += [value for _, value in await seen(watch, b"last")]
    assert values == [*(b"%d" % number for number in range(20)), b"last"]
    assert client.requests["watch"] == 1


@pytest.mark.parametrize("fault", ["kill", "freeze"])
async def test_a_member_that_fails_loses_and_repeats_nothing(etcd3members, connect, fault: str) -> None:
    """The watch is on member 0; the writer goes on at the others through its death and its return."""
    watcher: EtcdClient = connect(*etcd3members.endpoints)
    writer: EtcdClient = connect(*reversed(etcd3members.endpoints), timeout=20)
    async with watcher.watch(b"k/") as watch:
        for number in range(120):
            if number == 40:
                etcd3members.kill(0) if fault == "kill" else etcd3members.freeze(0)
            if number == 80:
                etcd3members.restart(0) if fault == "kill" else etcd3members.thaw(0)
            # Guarded, so that an attempt which was given up and is applied late, or twice, changes nothing.
            key, value = b"k/%d" % number, b"%d" % number
            await writer.txn([absent(key)], [Put(key, value)], idempotent=True)
        assert [int(value) for _, value in await seen(watch, b"119")] == list(range(120))


async def test_a_restart_of_the_only_member(etcd_cluster, connect) -> None:
    cluster = etcd_cluster()
    client: EtcdClient = connect(*cluster.endpoints, timeout=20)
    async with client.watch(b"k/") as watch:
        for number in range(200):
            await client.put(b"k/%d" % number, b"%d" % number)
            if number == 100:
                cluster.kill(0)
                await asyncio.to_thread(cluster.restart, 0)
        assert [int(value) for _, value in await seen(watch, b"199")] == list(range(200))


async def test_a_compacted_start_is_told(etcd_cluster, connect) -> None:
    client: EtcdClient = connect(*etcd_cluster().endpoints)
    first = await client.put(b"a", b"1")
    last = await client.put(b"a", b"2")
    await client.compact(last.revision)
    async with client.watch(b"a", first.revision) as watch:
        with pytest.raises(Compacted) as caught:
            await following(watch)
    assert caught.value.revision == last.revision


async def test_compaction_while_away_is_told(etcd_cluster, connect) -> None:
    endpoint = etcd_cluster().endpoints[0]
    client: EtcdClient = connect(endpoint)
    async with Proxy(endpoint) as proxy:
        through: EtcdClient = connect(proxy.endpoint)
        async with through.watch(b"a") as watch:
            await client.put(b"a", b"0")
            await following(watch)
            await proxy.refuse()
            await dead(watch)
            await client.put(b"a", b"1")
            await client.compact((await client.put(b"a", b"2")).revision)
            await proxy.heal()
            for _ in range(2):
                with pytest.raises(Compacted):
                    await following(watch)


async def test_progress_moves_the_place_to_resume(etcd_cluster, connect) -> None:
    """Else a watch of a quiet prefix could not resume after compaction, though it missed nothing."""
    endpoint = etcd_cluster().endpoints[0]
    client: EtcdClient = connect(endpoint)
    async with Proxy(endpoint) as proxy:
        through: EtcdClient = connect(proxy.endpoint)
        async with through.watch(b"quiet/") as watch:
            elsewhere = (await client.put(b"elsewhere", b"1")).revision
            elsewhere = (await client.put(b"elsewhere", b"2")).revision
            await watch.request_progress()
            batch = await following(watch)
            assert batch.events == ()
            assert batch.revision == elsewhere
            assert watch.next_revision == elsewhere + 1
            await proxy.refuse()
            await dead(watch)
            with pytest.raises(Unavailable, match="resuming"):
                await watch.request_progress()
            await client.compact(elsewhere)
            await proxy.heal()
            await client.put(b"quiet/a", b"last")
            assert await seen(watch, b"last") == [(b"quiet/a", b"last")]


async def test_a_silent_connection_is_noticed(etcd: TestEtcd, connect, client: EtcdClient, prefix: bytes) -> None:
    async with Proxy(etcd.endpoint) as proxy:
        through: EtcdClient = connect(proxy.endpoint, *etcd.endpoints)
        async with through.watch(prefix) as watch:
            heard_at = watch.heard_at
            proxy.silence()
            await client.put(prefix, b"last")
            assert await seen(watch, b"last") == [(prefix, b"last")]
            assert watch.heard_at > heard_at
            assert through.requests["watch"] == 2


async def test_a_member_that_does_not_confirm_is_left(
    etcd: TestEtcd, connect, prefix: bytes, without_pings: None
) -> None:
    async with Proxy(etcd.endpoint) as proxy:
        client: EtcdClient = connect(proxy.endpoint, *etcd.endpoints)
        await client.get(prefix)
        proxy.silence()
        async with client.watch(prefix) as watch:
            assert watch.live
        assert client.requests["watch"] == 2


async def test_a_member_cut_off_from_its_majority_is_left(etcd3members, connect) -> None:
    watcher: EtcdClient = connect(*etcd3members.endpoints)
    async with watcher.watch(b"a") as watch:
        etcd3members.kill(1)
        etcd3members.kill(2)
        # Without a leader the member would keep the stream open and silent.
        await dead(watch)
        etcd3members.restart(1, wait=False)
        etcd3members.restart(2, wait=False)
        etcd3members.freeze(0)
        writer: EtcdClient = connect(*etcd3members.endpoints[1:], timeout=60)
        await writer.txn([absent(b"a")], [Put(b"a", b"last")], idempotent=True)
        assert await seen(watch, b"last") == [(b"a", b"last")]


async def test_one_revision_is_never_split(etcd_cluster, connect) -> None:
    """Three revisions of 1.35 MB do not fit into one answer: etcd cuts in the middle of the second."""
    client: EtcdClient = connect(*etcd_cluster().endpoints)
    revisions = [
        (await client.txn([], [Put(b"k/%d" % key, b"%d" % number * 450_000) for key in range(3)])).revision
        for number in range(3)
    ]
    await client.put(b"k/", b"last")
    batches: list[WatchBatch] = []
    async with client.watch(b"k/", revisions[0]) as watch:
        while not batches or batches[-1].events[-1].kv.value != b"last":
            batches.append(await following(watch))
    delivered = [event.kv.mod_revision for batch in batches for event in batch.events]
    assert delivered == [revision for revision in revisions for _ in range(3)] + [delivered[-1]]
    for earlier, later in itertools.pairwise(batches):
        assert earlier.revision < later.events[0].kv.mod_revision


async def test_another_cluster_is_told(client: EtcdClient, prefix: bytes) -> None:
    with pytest.raises(ClusterChanged):
        async with client.watch(prefix, cluster_id=1):
            pass


async def test_another_cluster_behind_the_endpoint_is_told(etcd: TestEtcd, etcd_cluster, connect) -> None:
    async with Proxy(etcd.endpoint) as proxy:
        client: EtcdClient = connect(proxy.endpoint)
        async with client.watch(b"a") as watch:
            proxy.point_to(etcd_cluster().endpoints[0])
            proxy.cut()
            with pytest.raises(ClusterChanged):
                await following(watch)


async def test_nothing_is_left_on_the_server(etcd_cluster, connect) -> None:
    cluster = etcd_cluster()
    client: EtcdClient = connect(*cluster.endpoints)
    async with client.watch(b"a") as one, client.watch(b"b") as two:
        # Kept, so that no garbage collection ends them.
        streams = (one._stream, two._stream)
        await until_watchers(cluster, 2)
    await until_watchers(cluster, 0)
    assert all(streams)
    assert not client._watches
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            async with client.watch(b"a"):
                raise ZeroDivisionError
    watch = await client.watch(b"a").__aenter__()
    waiting = asyncio.create_task(anext(watch))
    await until_watchers(cluster, 1)
    await client.close()
    await until_watchers(cluster, 0)
    with pytest.raises(Closed):
        await waiting
    with pytest.raises(Closed):
        await anext(watch)


async def test_a_caller_who_takes_nothing_leaves_nothing_either(
    etcd_cluster, connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody reads the stream while the batches read ahead are not taken: closing must not depend on a read."""
    monkeypatch.setattr(watch_module, "_BATCHES_AHEAD", 1)
    cluster = etcd_cluster()
    client: EtcdClient = connect(*cluster.endpoints)
    async with client.watch(b"a") as watch:
        for number in range(5):
            await client.put(b"a", b"%d" % number)
        await until(lambda: watch._ready.full() and watch.next_revision > watch._ready._queue[0].revision + 1)
        stream = watch._stream
        await until_watchers(cluster, 1)
    assert stream is not None
    await until_watchers(cluster, 0)


async def test_entering_ends_when_nobody_answers(connect) -> None:
    client: EtcdClient = connect("127.0.0.1:1", timeout=1)
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(Unavailable):
            async with client.watch(b"a"):
                pass
