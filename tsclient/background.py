# SPDX-License-Identifier: Apache-2.0
"""The one thread, with one event loop, in which all clients of the process do their input and output.

One for all, and never closed while the program runs: gRPC hands late events of a finished call to the loop
that the call was made in, and in a process that uses grpc.aio itself it would do so from the program's own
loop, where a closed one makes an error.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class _Background:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                import asyncio  # a process without a client of this kind does without

                self._loop = asyncio.new_event_loop()
                # A daemon: a program that ends without closing must not hang in waiting for it.
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="tsclient", daemon=True)
                self._thread.start()
            return self._loop

    def stop(self, timeout: float) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    import asyncio

    asyncio.set_event_loop(loop)
    loop.run_forever()


_background = _Background()


def loop() -> asyncio.AbstractEventLoop:
    """The loop, running; started by the first call."""
    return _background.loop()


def stop(timeout: float) -> None:
    """At the end of the program, so that nothing runs while the interpreter is taken apart."""
    _background.stop(timeout)
