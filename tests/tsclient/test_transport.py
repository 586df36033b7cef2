# SPDX-License-Identifier: Apache-2.0
"""When a stream that has ended is opened again: at once if it had lasted, else later and later."""

from __future__ import annotations

import asyncio
import random

import pytest

from timeslice_proto.v1 import coordinator_pb2
from tsclient import transport
from tsclient.channel import silence_ms
from tsclient.errors import TimesliceError, Unavailable
from tsclient.settings import Settings
from tsclient.transport import SETTLED, Transport


class Patient(random.Random):
    """Always the longest time that may be waited."""

    def uniform(self, a: float, b: float) -> float:
        del a
        return b


class Listener:
    def connected(self) -> None: ...
    def disconnected(self, error: TimesliceError) -> None: ...
    def event(self, event: coordinator_pb2.SessionEvent) -> None: ...
    def tick(self) -> None: ...
    def crashed(self, error: Exception) -> None:
        raise error


async def pauses(monkeypatch: pytest.MonkeyPatch, *lasting: float) -> list[float]:
    """The pauses before streams that are greeted and then last so long (s), one after the other."""
    now = 100.0
    found: list[float] = []
    monkeypatch.setattr(transport, "boottime", lambda: now)
    tested = Transport(Settings(("h:1",), ttl=10.0), Listener(), Patient())
    next_of = tested._rotation.next
    left = list(lasting)

    def note() -> tuple[str, float]:
        endpoint, delay = next_of()
        found.append(delay)
        return endpoint, 0.0

    async def stream(endpoint: str, stopping: object) -> TimesliceError:
        nonlocal now
        del stopping
        tested.worked()
        now += left.pop(0)
        if not left:
            tested.stop()
        return Unavailable(f"{endpoint} has ended the stream.")

    monkeypatch.setattr(tested._rotation, "next", note)
    monkeypatch.setattr(tested, "_stream", stream)
    tested.start()
    async with asyncio.timeout(30):
        await tested.stopped()
    return found


async def test_streams_that_end_as_soon_as_they_are_used_are_opened_at_ever_longer_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await pauses(monkeypatch, 0.01, 0.01, 0.01, 0.01) == [0.0, 0.1, 0.2, 0.4]


async def test_after_a_stream_that_has_lasted_the_next_is_opened_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await pauses(monkeypatch, 0.01, SETTLED, SETTLED, 0.01, 0.01) == [0.0, 0.1, 0.0, 0.0, 0.1]


@pytest.mark.parametrize(
    ("ttl", "silence"), [(2.0, 2_000), (10.0, 2_000), (30.0, 6_000), (60.0, 10_000), (600.0, 10_000)]
)
def test_silence_is_noticed_within_a_ttl_and_a_long_one_makes_fewer_pings(ttl: float, silence: int) -> None:
    assert silence_ms(ttl) == silence
    assert 2 * silence < max(ttl, 5.0) * 1000
