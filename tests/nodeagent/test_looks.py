# SPDX-License-Identifier: Apache-2.0
"""Looks that are asked for at the same time are one; none is answered by what was seen before it was asked for."""

from __future__ import annotations

import asyncio

import pytest

from nodeagent.backends.driver import DeviceUse, DriverError, Sight
from nodeagent.backends.looks import Looks, Wish


class Driver:
    """Counts, as bytes in use, the looks that have begun; each ends when it is let."""

    def __init__(self) -> None:
        self.wishes: list[Wish] = []
        self._let = asyncio.Semaphore(0)
        self._begun = asyncio.Queue[None]()

    def let(self) -> None:
        self._let.release()

    async def make(self, wish: Wish) -> Sight:
        self.wishes.append(wish)
        self._begun.put_nowait(None)
        number = len(self.wishes)
        async with asyncio.timeout(wish.within):
            await self._let.acquire()
        if wish.pids == {13}:
            raise DriverError("look", 13, "no")
        return Sight({one: DeviceUse(one, number, 0, ()) for one in wish.devices}, dict.fromkeys(wish.pids))

    async def begun(self) -> None:
        """Another one has."""
        async with asyncio.timeout(30):
            await self._begun.get()


async def test_who_asks_while_one_is_on_its_way_shares_the_next() -> None:
    driver = Driver()
    looks = Looks(driver.make)
    first = asyncio.create_task(looks.look(["d0"], ["d0"], [1], within=30.0))
    await driver.begun()
    others = [asyncio.create_task(looks.look(["d0", f"d{n}"], [f"d{n}"], [n], within=30.0)) for n in (2, 3)]
    driver.let()
    assert (await first).use["d0"].used_bytes == 1
    await driver.begun()
    driver.let()
    seen = await asyncio.gather(*others)
    assert [one.use["d0"].used_bytes for one in seen] == [2, 2], "not what was seen before they asked"
    assert driver.wishes[1] == Wish({"d0", "d2", "d3"}, {"d2", "d3"}, {2, 3}, 30.0)
    assert len(driver.wishes) == 2


async def test_each_waits_as_long_as_it_likes() -> None:
    driver = Driver()
    looks = Looks(driver.make)
    first = asyncio.create_task(looks.look(["d"], [], [], within=30.0))
    await driver.begun()
    patient = asyncio.create_task(looks.look(["d"], [], [], within=30.0))
    with pytest.raises(TimeoutError):
        await looks.look(["d"], [], [], within=0.01)
    driver.let()
    assert (await first).use["d"].used_bytes == 1
    driver.let()
    assert (await patient).use["d"].used_bytes == 2
    assert driver.wishes[1].within == 30.0


async def test_who_looks_alone_has_a_limit_too() -> None:
    driver = Driver()
    looks = Looks(driver.make)
    with pytest.raises(TimeoutError):
        await looks.look(["d"], [], [], within=0.01)
    driver.let()
    assert (await looks.look(["d"], [], [], within=30.0)).use["d"].used_bytes == 2


async def test_who_leaves_while_looking_alone_holds_up_nobody() -> None:
    driver = Driver()
    looks = Looks(driver.make)
    alone = asyncio.create_task(looks.look(["d"], [], [], within=30.0))
    await driver.begun()
    other = asyncio.create_task(looks.look(["d"], [], [], within=30.0))
    await asyncio.sleep(0)
    alone.cancel()
    await driver.begun()
    driver.let()
    assert (await other).use["d"].used_bytes == 2


async def test_a_failure_is_told_to_all_who_shared_it_and_to_nobody_else() -> None:
    driver = Driver()
    looks = Looks(driver.make)
    first = asyncio.create_task(looks.look(["d"], [], [], within=30.0))
    await driver.begun()
    bad = [asyncio.create_task(looks.look([], [], [13], within=30.0)) for _ in range(2)]
    await asyncio.sleep(0)
    driver.let()
    await driver.begun()
    good = asyncio.create_task(looks.look(["d"], [], [], within=30.0))
    driver.let()
    driver.let()
    assert all(isinstance(one, DriverError) for one in await asyncio.gather(*bad, return_exceptions=True))
    assert (await first).use["d"].used_bytes == 1
    assert (await good).use["d"].used_bytes == 3


async def test_none_is_made_after_the_end() -> None:
    """The next would start another helper, with the devices' locks."""
    driver = Driver()
    looks = Looks(driver.make)
    first = asyncio.create_task(looks.look(["d"], [], [], within=30.0))
    await driver.begun()
    second = asyncio.create_task(looks.look(["d"], [], [], within=30.0))
    await asyncio.sleep(0)
    await looks.close()
    driver.let()
    both = await asyncio.gather(first, second, return_exceptions=True)
    assert all(isinstance(one, asyncio.CancelledError) for one in both)
    assert len(driver.wishes) == 1
