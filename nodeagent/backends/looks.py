# SPDX-License-Identifier: Apache-2.0
"""One call of the driver for all who look at the same time, however many groups a node has.

Who asks while a look is on its way is answered by the next one, never by that: what it sees may be older than the
question. All who wait for the next one share it. Who asks while none is on its way makes one himself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from ledger.patience import fulfilled
from nodeagent.backends.driver import Sight


@dataclass(slots=True)
class Wish:
    """What a look is to see: the account of ``devices``, the states of ``pids``, and of all processes on ``of``.

    Attributes:
        within: seconds.
        answers: of those who asked.
    """

    devices: set[str] = field(default_factory=set)
    of: set[str] = field(default_factory=set)
    pids: set[int] = field(default_factory=set)
    within: float = 0.0
    answers: list[asyncio.Future[Sight]] = field(default_factory=list, compare=False)

    def awaited(self) -> Iterator[asyncio.Future[Sight]]:
        """The answers that are due: not of those who have lost patience, or been told."""
        return (answer for answer in self.answers if not answer.done())


class Looks:
    """Looks of one node's driver, one at a time.

    Args:
        make: has one made, within the wish's time. Raises what goes wrong.
    """

    def __init__(self, make: Callable[[Wish], Awaitable[Sight]]) -> None:
        self._make = make
        self._turn = asyncio.Lock()
        self._next: Wish | None = None
        self._wishes: dict[asyncio.Task[None], Wish] = {}
        self._alone: asyncio.Task[Any] | None = None  # who makes one himself

    async def look(
        self, devices: Collection[str], of: Collection[str], pids: Collection[int], *, within: float
    ) -> Sight:
        """See it as it is now or later. Raises TimeoutError after ``within`` seconds, and what ``make`` raises."""
        if self._next is None and not self._turn.locked():
            async with self._turn:
                self._alone = asyncio.current_task()
                try:
                    return await self._make(Wish(set(devices), set(of), set(pids), within))
                finally:
                    self._alone = None
        if self._next is None:
            self._next = Wish()
            task = asyncio.create_task(self._see(self._next))
            self._wishes[task] = self._next
            task.add_done_callback(self._wishes.pop)
        wish = self._next
        wish.devices.update(devices)
        wish.of.update(of)
        wish.pids.update(pids)
        # The helper is ended when the most patient has lost patience; the others go before.
        wish.within = max(wish.within, within)
        answer: asyncio.Future[Sight] = asyncio.get_running_loop().create_future()
        wish.answers.append(answer)
        return await fulfilled(answer, within)

    async def _see(self, wish: Wish) -> None:
        try:
            async with self._turn:
                self._next = None  # who comes from here on wants another
                seen = await self._make(wish)
        except Exception as error:  # noqa: BLE001 - told to all who asked; if nobody waits any more, it is nobody's
            for answer in wish.awaited():
                answer.set_exception(error)
        else:
            for answer in wish.awaited():
                answer.set_result(seen)

    async def close(self) -> None:
        """No look is made from here on: who waits for one is cancelled."""
        if self._alone is not None:
            self._alone.cancel()
        wishes = dict(self._wishes)
        for task in wishes:
            task.cancel()
        await asyncio.gather(*wishes, return_exceptions=True)
        for wish in wishes.values():
            for answer in wish.awaited():
                answer.cancel()
