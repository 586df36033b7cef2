# SPDX-License-Identifier: Apache-2.0
"""A question asked beside the work whose last step needs the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

FRESH = 0.25
"""Seconds after which the answer counts no more: what was asked before a long wait is asked again after it."""


class Early:
    """``async with Early(ask, at_once=True) as early: …; await early.answer()``.

    Args:
        at_once: ask now; else only when the answer is wanted.
        clock: seconds, monotonic.
    """

    def __init__(
        self, ask: Callable[[], Awaitable[bool]], *, at_once: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask, self._clock, self._asked = ask, clock, clock()
        self._task = asyncio.ensure_future(ask()) if at_once else None

    async def answer(self) -> bool:
        """Raises what ``ask`` raises."""
        if self._task is not None and self._clock() - self._asked < FRESH:
            return await self._task
        return await self._ask()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            # Wanted or not: an answer that nobody waits for fails nothing.
            await asyncio.gather(self._task, return_exceptions=True)
