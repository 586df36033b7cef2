# SPDX-License-Identifier: Apache-2.0
"""The events of one stream on their way out: one writer, since a stream takes one message at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from coordinator.serve.seat import Event

BACKLOG = 256
"""Events that a client has not taken yet, from which on it is spared progress."""


class Outbox:
    """Events in order. What a client must know is never dropped."""

    def __init__(self, write: Callable[[Event], Awaitable[None]]) -> None:
        self._write = write
        self._events: deque[Event] = deque()
        self._something = asyncio.Event()
        self._closed = False

    def put(self, event: Event) -> None:
        if len(self._events) >= BACKLOG and event.WhichOneof("event") in ("queued", "switching"):
            return
        self._events.append(event)
        self._something.set()

    def close(self) -> None:
        """`run` returns once all that was put is written."""
        self._closed = True
        self._something.set()

    async def run(self) -> None:
        while self._events or not self._closed:
            await self._something.wait()
            self._something.clear()
            while self._events:
                await self._write(self._events.popleft())
