# SPDX-License-Identifier: Apache-2.0
"""Waiting for what has no event of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_SECONDS = 30.0
_INTERVAL = 0.005


async def until(condition: Callable[[], bool], seconds: float = _SECONDS) -> None:
    """Return once `condition()` is true. Raises TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - a counter, or another process's state: nothing sets an event
            await asyncio.sleep(_INTERVAL)
