# SPDX-License-Identifier: Apache-2.0
"""Rule 31: somebody compacts etcd's history, one of the replicas at a time, and enough of it is kept."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from coordinator.command import add_arguments, settings_of
from coordinator.serve.compaction import KEEP_LEAST, Compactor
from ledger.codec import decode, encode
from ledger.embedded import EtcdCluster
from ledger.etcd import EtcdClient, EventType
from ledger.etcd.errors import Compacted
from ledger.records import Compaction
from tests.coordinator.serve.world import WITHIN, World

KEEP = 1.0
"""Seconds of history that are kept here."""


@pytest.fixture
async def alone(etcd_cluster: Callable[..., EtcdCluster]) -> AsyncIterator[World]:
    """A world on an etcd of its own: others would see their history go."""
    cluster = etcd_cluster(1)
    async with contextlib.AsyncExitStack() as stack:
        yield World(cluster.endpoints, "/t/", stack)


async def gone(etcd: EtcdClient, revision: int) -> bool:
    try:
        await etcd.get_prefix(b"/x", revision=revision)
    except Compacted:
        return True
    return False


async def eventually(holds: Callable[[], Awaitable[bool]]) -> bool:
    """Whether it holds within a generous time. etcd tells nobody that it has compacted."""
    for _ in range(round(WITHIN / 0.05)):
        if await holds():
            return True
        await asyncio.sleep(0.05)
    return False


async def test_rule_31_history_is_compacted_once_a_period_by_one_of_the_replicas_and_the_newest_is_kept(
    alone: World,
) -> None:
    etcd = await alone.etcd()
    written: list[tuple[float, Compaction]] = []
    first = (await etcd.put(b"/x/1", b"")).revision
    async with etcd.watch(alone.keys.compaction(), first, exact=True) as batches:
        for _ in range(3):
            await alone.replica(history=KEEP)
        async with asyncio.timeout(WITHIN):
            async for batch in batches:
                for event in batch.events:
                    assert event.type is EventType.PUT
                    written.append((time.monotonic(), decode(Compaction, event.kv.value)))
                if len(written) >= 4:
                    break
    times = [when for when, _ in written]
    assert min(later - sooner for sooner, later in itertools.pairwise(times)) >= KEEP * 0.9, times
    *_, before, last = (noted.revision for _, noted in written)
    assert await eventually(lambda: gone(etcd, before - 1))
    assert not await gone(etcd, last - 1), "what came after the last note but one is not yet old enough"


async def test_rule_31_of_two_replicas_that_see_that_it_is_time_one_goes_on(alone: World) -> None:
    replicas = [await alone.replica(history=None) for _ in range(2)]
    key, etcd = alone.keys.compaction(), await alone.etcd()
    put = await etcd.put(key, encode(Compaction(revision=1)))
    for replica in replicas:
        await replica.engine.view.reached(put.revision, WITHIN)
    compactors = [Compactor(replica.engine) for replica in replicas]
    await asyncio.gather(*(one._note(replicas[0].engine.picture.compaction()) for one in compactors))
    kv = await etcd.get(key)
    assert kv is not None and kv.version == 2


async def test_rule_31_nothing_is_compacted_where_it_is_not_asked_for(alone: World) -> None:
    await alone.replica(history=None)
    other = await alone.replica(history=KEEP)
    etcd = await alone.etcd()

    async def twice() -> bool:
        kv = await etcd.get(alone.keys.compaction())
        return kv is not None and kv.version >= 2

    assert await eventually(twice)
    kv = await etcd.get(alone.keys.compaction())
    assert kv is not None and decode(Compaction, kv.value).replica == other.engine.replica_id


@pytest.mark.parametrize("value", [b"nonsense", encode(Compaction(version=99, revision=1))])
async def test_rule_32_a_note_that_cannot_be_read_is_never_overwritten(alone: World, value: bytes) -> None:
    etcd = await alone.etcd()
    await etcd.put(alone.keys.compaction(), value)
    first = (await etcd.put(b"/x/1", b"")).revision
    replica = await alone.replica(history=KEEP)
    assert replica.engine.picture.compaction_error() is not None
    await asyncio.sleep(3 * KEEP)
    kv = await etcd.get(alone.keys.compaction())
    assert kv is not None and kv.value == value
    assert not await gone(etcd, first)


@pytest.mark.parametrize(("given", "kept"), [((), KEEP_LEAST), (("600",), 600.0), (("0",), None)])
def test_how_much_history_is_kept(given: tuple[str, ...], kept: float | None) -> None:
    assert settings_of(_arguments(*given), {}).history == kept


@pytest.mark.parametrize("given", ["299", "-1", "nan"])
def test_rule_31_less_than_five_minutes_are_refused(given: str) -> None:
    with pytest.raises(ValueError, match="at least 300"):
        settings_of(_arguments(given), {})


def _arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args([f"--history-seconds={one}" for one in given])
