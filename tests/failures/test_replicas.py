# SPDX-License-Identifier: Apache-2.0
"""L11: a replica that stands still between deciding and writing, and wakes up late, changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from coordinator.apply.hedge import rank
from coordinator.decide import Decision, GroupView
from coordinator.serve.server import CoordinatorServer
from ledger.etcd.txn import Compare
from ledger.records import Phase
from tests.coordinator.serve.world import WITHIN, World

Write = Callable[..., Awaitable[int | None]]


class Asleep:
    """A replica that stands still when it has decided to begin COMMIT, and has not written it.

    ``fell``: it does; ``wake``: it goes on; ``wrote``: what became of that write.
    """

    def __init__(self, sleeper: CoordinatorServer, other: CoordinatorServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fell, self.wake = asyncio.Event(), asyncio.Event()
        self.wrote: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(sleeper.engine, "write", self._stands_still(sleeper.engine.write))
        monkeypatch.setattr(other.engine, "write", self._after_it(other.engine.write))

    def _stands_still(self, write: Write) -> Write:
        async def late(view: GroupView, decision: Decision, deadline: float, *guards: Sequence[Compare]) -> int | None:
            if self.fell.is_set() or not begins_commit(decision):
                return await write(view, decision, deadline, *guards)
            self.fell.set()
            await self.wake.wait()
            self.wrote.set_result(await write(view, decision, deadline + WITHIN, *guards))
            return self.wrote.result()

        return late

    def _after_it(self, write: Write) -> Write:
        async def second(view: GroupView, decision: Decision, *more: Any) -> int | None:
            if begins_commit(decision):
                await self.fell.wait()
            return await write(view, decision, *more)

        return second


def begins_commit(decision: Decision) -> bool:
    return decision.turn is not None and decision.turn.phase is Phase.COMMITTING


async def test_l11_a_write_decided_before_the_others_went_on_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two replicas are about to begin the same COMMIT. One does; the other writes when that switch is long over."""
    sleeper, other = await world.replica(replica_id="r0"), await world.replica(replica_id="r1")
    if rank("r0", {"r0", "r1"}, "g"):  # the one that acts first is to fall asleep
        sleeper, other = other, sleeper
    await world.group(other)
    a, b = await world.client(other), await world.client(other)
    await a.acquire(1, "a")
    token = (await a.event("granted")).grants[0].token
    asleep = Asleep(sleeper, other, monkeypatch)
    await b.acquire(1, "b")
    await b.event("queued")
    await a.give_back(1, "a", token)
    async with asyncio.timeout(WITHIN):
        await asleep.fell.wait()
    after = (await b.event("granted")).grants[0].token  # by the other
    before = other.engine.picture.turn("g")
    asleep.wake.set()
    async with asyncio.timeout(WITHIN):
        assert await asleep.wrote is None
    assert other.engine.picture.turn("g") == before
    await b.give_back(1, "b", after)
    await b.event("yielded")
