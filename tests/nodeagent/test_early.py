# SPDX-License-Identifier: Apache-2.0
"""An answer asked for early counts while it is fresh, and fails nobody who does not want it."""

from __future__ import annotations

import asyncio

import pytest

from nodeagent.early import FRESH, Early


class Clock:
    """Seconds, as told."""

    now = 7.0

    def __call__(self) -> float:
        return self.now


class Ledger:
    """Says in turn what it was given, and counts how often it was asked."""

    def __init__(self, *answers: bool) -> None:
        self._answers, self.asked = iter(answers), 0

    async def ask(self) -> bool:
        self.asked += 1
        return next(self._answers)


async def test_it_is_asked_once_and_beside_the_work() -> None:
    ledger, clock = Ledger(True), Clock()
    async with Early(ledger.ask, at_once=True, clock=clock) as early:
        await asyncio.sleep(0)
        assert ledger.asked == 1
        clock.now += FRESH * 0.9
        assert await early.answer()
    assert ledger.asked == 1


async def test_what_was_said_before_a_long_wait_does_not_count() -> None:
    ledger, clock = Ledger(True, False), Clock()
    async with Early(ledger.ask, at_once=True, clock=clock) as early:
        await asyncio.sleep(0)
        clock.now += FRESH
        assert not await early.answer()


async def test_who_is_not_wanted_is_not_asked() -> None:
    ledger = Ledger(True)
    async with Early(ledger.ask, at_once=False) as early:
        await asyncio.sleep(0)
        assert ledger.asked == 0
        assert await early.answer()


async def test_an_answer_that_nobody_waits_for_fails_nothing() -> None:
    async def fail() -> bool:
        raise OSError("away")

    async with Early(fail, at_once=True):
        await asyncio.sleep(0)
    async with Early(fail, at_once=True) as early:
        with pytest.raises(OSError, match="away"):
            await early.answer()
