# SPDX-License-Identifier: Apache-2.0
"""How a coroutine waits: `tsclient.waiting`'s steps, driven in its event loop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from typing import Generic, TypeVar

from tsclient.waiting import Steps

_Reply = TypeVar("_Reply")
_Result = TypeVar("_Result")


class AsyncInbox(Generic[_Reply]):
    """Of a coroutine, in the loop that it is made in."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._replies: asyncio.Queue[_Reply] = asyncio.Queue()

    def put(self, reply: _Reply) -> None:
        # A loop that has been closed has nobody in it who waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._replies.put_nowait, reply)

    async def drive(self, steps: Steps[_Reply, _Result]) -> _Result:
        """Take the steps to their end."""
        try:
            until = next(steps)
            while True:
                try:
                    reply = await self._next(until)
                except BaseException as error:  # noqa: BLE001 - the steps say what follows
                    until = steps.throw(error)
                else:
                    until = steps.send(reply)
        except StopIteration as end:
            result: _Result = end.value
            return result

    async def _next(self, until: float) -> _Reply | None:
        getting = asyncio.ensure_future(self._replies.get())
        try:
            # Not `wait_for`: before Python 3.12 it may lose a reply that comes together with a cancellation.
            await asyncio.wait({getting}, timeout=None if until == math.inf else max(0.0, until - time.monotonic()))
            return getting.result() if getting.done() else None
        finally:
            getting.cancel()
