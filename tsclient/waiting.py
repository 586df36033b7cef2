# SPDX-License-Identifier: Apache-2.0
"""How a caller waits: the same steps, driven by a thread that blocks or by a coroutine.

A generator of steps yields the time (monotonic, s) until which it wants the next reply, and is sent that reply, or
None if the time came first. What interrupts the wait is raised in it.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Generator
from typing import Generic, Protocol, TypeVar

_Reply = TypeVar("_Reply")
_ReplyIn = TypeVar("_ReplyIn", contravariant=True)
_Result = TypeVar("_Result")

Steps = Generator[float, "_Reply | None", _Result]


class Inbox(Protocol[_ReplyIn]):
    """Where one caller's replies go; any thread may put."""

    def put(self, reply: _ReplyIn) -> None: ...


class BlockingInbox(Generic[_Reply]):
    """Of a thread. `SimpleQueue` can be interrupted at any point and stays sound."""

    def __init__(self) -> None:
        self._replies: queue.SimpleQueue[_Reply] = queue.SimpleQueue()

    def put(self, reply: _Reply) -> None:
        self._replies.put(reply)

    def drive(self, steps: Steps[_Reply, _Result]) -> _Result:
        """Take the steps to their end."""
        try:
            until = next(steps)
            while True:
                try:
                    reply = self._next(until)
                except BaseException as error:  # noqa: BLE001 - the steps say what follows
                    until = steps.throw(error)
                else:
                    until = steps.send(reply)
        except StopIteration as end:
            result: _Result = end.value
            return result

    def _next(self, until: float) -> _Reply | None:
        try:
            left = min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)
            return self._replies.get(timeout=None if until == math.inf else left)
        except queue.Empty:
            return None
