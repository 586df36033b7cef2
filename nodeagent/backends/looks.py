# SPDX-License-Identifier: Apache-2.0
"""One call of the driver for all who look at the same time, however many groups a node has.

Who asks while a look is on its way is answered by the next one, never by that: what it sees may be older than the
question. All who wait for the next one share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from ledger.records import ProcessState
from nodeagent.backends.driver import DeviceUse


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen: at least what was asked for.

    Attributes:
        use: the account of each device, by UUID.
        states: of each process; None: it has no context on a device.
    """

    use: dict[str, DeviceUse]
    states: dict[int, ProcessState | None]


@dataclass(slots=True)
class Wish:
    """What a look is to see: the account of ``devices``, the states of ``pids``, and of all processes on ``of``."""

    devices: set[str] = field(default_factory=set)
    of: set[str] = field(default_factory=set)
    pids: set[int] = field(default_factory=set)
    within: float = 0.0


class Looks:
    """Looks of one node's driver, one at a time. ``make`` has one made, and raises what goes wrong."""

    def __init__(self, make: Callable[[Wish], Awaitable[Sight]]) -> None:
        self._make = make
        self._turn = asyncio.Lock()
        self._next: tuple[Wish, asyncio.Task[Sight]] | None = None
        self._tasks: set[asyncio.Task[Sight]] = set()

    async def look(
        self, devices: Collection[str], of: Collection[str], pids: Collection[int], *, within: float
    ) -> Sight:
        """See it as it is now or later. Raises TimeoutError after ``within`` seconds, and what ``make`` raises."""
        if self._next is None:
            wish = Wish()
            task = asyncio.create_task(self._see(wish))
            self._tasks.add(task)
            task.add_done_callback(self._ended)
            self._next = wish, task
        wish, task = self._next
        wish.devices.update(devices)
        wish.of.update(of)
        wish.pids.update(pids)
        # The helper is ended when the most patient has lost patience; the others go before.
        wish.within = max(wish.within, within)
        async with asyncio.timeout(within):
            return await asyncio.shield(task)

    async def _see(self, wish: Wish) -> Sight:
        async with self._turn:
            self._next = None  # who comes from here on wants another
            return await self._make(wish)

    def _ended(self, task: asyncio.Task[Sight]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a failure that nobody waits for any more is nobody's

    async def close(self) -> None:
        """No look is made from here on."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
