# SPDX-License-Identifier: Apache-2.0
"""Progress for those who wait, at most once a second for each group, however often the group changes.

A grant does not come by this way: each session hears of its own tickets at once, alone.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

from coordinator.apply.engine import Engine
from coordinator.serve.seat import PROGRESS_EVERY


class Bell:
    """Rings for a group at its first change, and then once for all changes of each second."""

    def __init__(self, engine: Engine, every: float = PROGRESS_EVERY) -> None:
        self._loop = asyncio.get_running_loop()
        self._every = every
        self._listeners: defaultdict[str, set[Callable[[], None]]] = defaultdict(set)
        self._rang_at: dict[str, float] = {}
        self._due: dict[str, asyncio.TimerHandle] = {}
        self._unsubscribe = engine.subscribe(self._changed)

    def listen(self, group: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Be told that a group has changed. Returns how to end it."""
        self._listeners[group].add(callback)

        def end() -> None:
            callbacks = self._listeners.get(group)
            if callbacks is not None:
                callbacks.discard(callback)
                if not callbacks:
                    del self._listeners[group]
                    self._rang_at.pop(group, None)

        return end

    def close(self) -> None:
        self._unsubscribe()
        for timer in self._due.values():
            timer.cancel()
        self._due.clear()

    def _changed(self, groups: frozenset[str]) -> None:
        for group in groups:
            if group not in self._listeners or group in self._due:
                continue
            wait = self._rang_at.get(group, -self._every) + self._every - self._loop.time()
            if wait <= 0:
                self._ring(group)
            else:
                self._due[group] = self._loop.call_later(wait, self._ring, group)

    def _ring(self, group: str) -> None:
        self._due.pop(group, None)
        listeners = tuple(self._listeners.get(group, ()))
        if listeners:
            self._rang_at[group] = self._loop.time()
        for callback in listeners:
            callback()
