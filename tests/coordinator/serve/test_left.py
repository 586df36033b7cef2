# SPDX-License-Identifier: Apache-2.0
"""What is left of a stream that has ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.serve.bell import Bell
from coordinator.serve.stream import SessionStream
from tests.coordinator.serve.world import World
from tests.support.until import until
from timeslice_proto.v1 import coordinator_pb2 as pb


async def test_a_wait_that_outlives_its_stream_listens_to_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bells: set[Bell] = set()
    listen, acquire = Bell.listen, SessionStream._acquire
    ended: list[pb.AcquireRequest] = []

    def noted(bell: Bell, group: str, callback: Callable[[], None]) -> Callable[[], None]:
        bells.add(bell)
        return listen(bell, group, callback)

    async def told(stream: SessionStream, request: pb.AcquireRequest) -> None:
        try:
            await acquire(stream, request)
        finally:
            if request.if_held == pb.IF_HELD_WAIT:
                ended.append(request)

    monkeypatch.setattr(Bell, "listen", noted)
    monkeypatch.setattr(SessionStream, "_acquire", told)
    replica = await world.replica()
    await world.group(replica)
    holder, waiter, other = [await world.client(replica) for _ in range(3)]
    await holder.acquire(1, "a")
    await holder.event("granted")
    await other.acquire(1, "b")
    await other.event("queued")
    await waiter.acquire(1, "a", if_held=pb.IF_HELD_WAIT)
    await waiter.event("queued")
    (bell,) = bells
    before = len(bell._groups["g"].listeners)
    waiter.call.cancel()
    await until(lambda: bool(ended))
    assert len(bell._groups["g"].listeners) == before
