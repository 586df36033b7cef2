# SPDX-License-Identifier: Apache-2.0
"""The answers of many nodes are looked at together; the last of them, and whatever comes alone, waits for nobody."""

from __future__ import annotations

import asyncio
from unittest.mock import create_autospec

import pytest

from coordinator.apply import worker as module
from coordinator.apply.engine import Engine
from coordinator.apply.worker import GroupWorker

FOR_EVER = 3600.0


class _Worker(GroupWorker):
    """Counts how often it decides, each time that answers of so many nodes are awaited."""

    def __init__(self, awaited: int) -> None:
        super().__init__(create_autospec(Engine, instance=True), "g")
        self.awaited, self.looks = awaited, 0
        self.looked = asyncio.Event()

    def _step(self) -> None:
        self.looks += 1
        self._awaited = self.awaited
        self.looked.set()

    async def look(self) -> None:
        """Wait for one."""
        async with asyncio.timeout(30):
            await self.looked.wait()
        self.looked.clear()


async def test_the_last_answer_is_looked_at_once_and_those_before_it_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER", FOR_EVER)
    worker = _Worker(3)
    worker.wake()
    await worker.look()
    for _ in range(2):
        worker.wake()
        for _ in range(3):
            await asyncio.sleep(0)
        assert worker.looks == 1
    worker.wake()
    await worker.look()
    assert worker.looks == 2
    await worker.close()


async def test_one_answer_of_many_is_looked_at_soon() -> None:
    worker = _Worker(64)
    for looks in (1, 2, 3):
        worker.wake()
        await worker.look()
        assert worker.looks == looks
    await worker.close()


async def test_of_one_node_nothing_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER", FOR_EVER)
    for awaited in (0, 1):
        worker = _Worker(awaited)
        for _ in range(3):
            worker.wake()
            await worker.look()
        assert worker.looks == 3
        await worker.close()


async def test_who_has_stopped_looks_no_more() -> None:
    worker = _Worker(64)
    worker.wake()
    await worker.look()
    worker.wake()
    worker.stop()
    await asyncio.sleep(5 * module.GATHER)
    assert worker.looks == 1
