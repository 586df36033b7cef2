# SPDX-License-Identifier: Apache-2.0
"""The events of one stream on their way out: one at a time, since a stream takes one message at a time."""

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
        self._writing = False
        self._failure: Exception | None = None
        self._closed = False

    def put(self, event: Event) -> None:
        if len(self._events) >= BACKLOG and event.WhichOneof("event") in ("queued", "switching"):
            return
        self._events.append(event)
        self._something.set()

    async def tell(self, event: Event) -> None:
        """As `put`; where nothing is being written it is, before anything else is done. A failure is `run`'s."""
        if self._writing or self._closed or self._failure is not None:
            self.put(event)
            return
        self._events.append(event)
        try:
            await self._write_all()
        except Exception as error:  # noqa: BLE001 - the stream's end, and not the caller's affair
            self._failure = error
            self._something.set()

    def close(self) -> None:
        """`run` returns once all that was put is written."""
        self._closed = True
        self._something.set()

    async def run(self) -> None:
        """Write what nobody else has. Raises what a write has failed by."""
        while self._events or self._writing or not self._closed:
            await self._something.wait()
            self._something.clear()
            if self._failure is not None:
                raise self._failure
            if self._events and not self._writing:
                await self._write_all()

    async def _write_all(self) -> None:
        self._writing = True
        try:
            while self._events:
                await self._write(self._events.popleft())
        finally:
            self._writing = False
            if self._closed or self._events:
                self._something.set()  # `run` waits for the end of this
