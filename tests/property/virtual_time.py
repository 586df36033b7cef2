# SPDX-License-Identifier: Apache-2.0
"""An event loop whose time passes only when nothing else is to be done: hours in milliseconds, always the same."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """For code that waits by the loop's own timers. Where everything waits for something else, that is an error."""

    def __init__(self) -> None:
        self.now = 1_000.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now

    def pass_time(self, seconds: float) -> None:
        """Let everybody work until so many seconds have passed."""
        self.run_until_complete(asyncio.sleep(seconds))

    def work(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it to its end, and everybody else meanwhile."""
        return self.run_until_complete(coroutine)


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if found or timeout == 0:
            return found
        assert timeout is not None, "everybody waits, and nothing will ever happen"
        self._loop.now += timeout
        return []
