# SPDX-License-Identifier: Apache-2.0
"""L11: a replica that stands still between deciding and writing, and wakes up late, changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from coordinator.decide import Decision, GroupView
from coordinator.serve.server import CoordinatorServer
from ledger.etcd.txn import Compare
from ledger.records import Phase, TicketState
from tests.coordinator.serve.world import WITHIN, World, state_of, until_seen
from timeslice_proto.v1 import coordinator_pb2 as pb


class Asleep:
    """Of one replica: its next write stands still, until it is woken; ``wrote`` is what became of it."""

    def __init__(self, replica: CoordinatorServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fell, self.wake = asyncio.Event(), asyncio.Event()
        self.decided: Decision | None = None
        self.wrote: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._write = replica.engine.write
        monkeypatch.setattr(replica.engine, "write", self.write)

    async def write(
        self, view: GroupView, decision: Decision, deadline: float, *guards: Sequence[Compare]
    ) -> int | None:
        if self.fell.is_set():
            return await self._write(view, decision, deadline, *guards)
        self.decided = decision
        self.fell.set()
        await self.wake.wait()
        wrote = await self._write(view, decision, deadline + WITHIN, *guards)
        self.wrote.set_result(wrote)
        return wrote


async def test_l11_a_write_decided_before_the_others_went_on_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two replicas are about to begin the same switch. One writes; the other does so after all is over."""
    sleeper, other = await world.replica(), await world.replica()
    await world.group(other)
    a, b = await world.client(other), await world.client(other)
    await a.acquire(1, "a")
    token = (await a.event("granted")).grants[0].token
    await b.acquire(1, "b")
    await b.event("queued")
    await until_seen(sleeper, lambda: state_of(sleeper, "b") is TicketState.WAITING)

    # The sleeper is asked for the yield, and stands still before it writes it.
    asleep = Asleep(sleeper, monkeypatch)
    again = await world.client(sleeper, opened=False)
    a.call.cancel()
    held = [pb.HeldTurn(sequence=1, job="a", group="g", token=token)]
    await again.resume(a, last_sequence=1, held=held)
    await again.give_back(1, "a", token)
    async with asyncio.timeout(WITHIN):
        await asleep.fell.wait()
    assert asleep.decided is not None
    assert asleep.decided.turn is not None
    assert asleep.decided.turn.phase is Phase.PREPARING

    # Meanwhile the client gives its turn back elsewhere; b has its turn, and gives it back as well.
    third = await world.client(other, opened=False)
    await third.resume(a, last_sequence=1, held=held)
    await third.give_back(1, "a", token)
    await third.event("yielded")
    after = (await b.event("granted")).grants[0].token
    before = other.engine.picture.turn("g")
    asleep.wake.set()
    async with asyncio.timeout(WITHIN):
        assert await asleep.wrote is None
    assert other.engine.picture.turn("g") == before
    await b.give_back(1, "b", after)
    await b.event("yielded")
