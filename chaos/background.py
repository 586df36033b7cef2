# SPDX-License-Identifier: Apache-2.0
"""One event loop, in a thread of its own, for what a blocking program does with asyncio beside its own work.

One for the whole process, and never closed: gRPC hands late events to the loop that a call was made in.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="background", daemon=True).start()
    return loop


def begin(work: Coroutine[Any, Any, _T]) -> Future[_T]:
    """Run it there, from now on."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


def call(work: Coroutine[Any, Any, _T], within: float) -> _T:
    """Run it there, and wait for what it returns or raises; TimeoutError, and its end, after so many seconds."""
    future = begin(work)
    try:
        return future.result(within)
    finally:
        future.cancel()
