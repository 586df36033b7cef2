# SPDX-License-Identifier: Apache-2.0
"""Progress for those who wait: each at most once a second, and no more of all of them than a replica can easily tell.

A hand-off changes the place of everybody behind it. It costs the same however many these are: who waits is told in
rounds, the one that has heard nothing for the longest time first. A grant does not come by this way: each session
hears of its own tickets at once, alone.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.apply.engine import Engine
from coordinator.serve.seat import PROGRESS_EVERY

PERIOD = 0.1
"""Seconds between two rounds, as long as there is something to tell."""

ROUND = 10
"""Waiters that are told in one round: 100 a second, a few hundredths of what a replica can do."""

Callback = Callable[[], None]


@dataclass(slots=True)
class _Heard:
    """What a listener was last rung for, and when: seconds of the event loop's clock."""

    change: int
    at: float = float("-inf")


@dataclass(slots=True)
class _Group:
    """``change``: the number of the group's last change. ``listeners``: who has heard nothing for longest is first."""

    change: int = 0
    listeners: OrderedDict[Callback, _Heard] = field(default_factory=OrderedDict)


class Bell:
    """Rings each listener of a group that has changed, once for all changes since it was last rung."""

    def __init__(self, engine: Engine, every: float = PROGRESS_EVERY, period: float = PERIOD) -> None:
        self._loop = asyncio.get_running_loop()
        self._every, self._period = every, period
        self._groups: dict[str, _Group] = {}
        self._due: OrderedDict[str, None] = OrderedDict()  # the groups of which somebody has yet to hear
        self._round: asyncio.TimerHandle | None = None
        self._unsubscribe = engine.subscribe(self._changed)

    def listen(self, group: str, callback: Callback) -> Callable[[], None]:
        """Be told that a group has changed, from now on. Returns how to end it."""
        known = self._groups.setdefault(group, _Group())
        known.listeners[callback] = _Heard(known.change)

        def end() -> None:
            known.listeners.pop(callback, None)
            if not known.listeners and self._groups.get(group) is known:
                del self._groups[group]
                self._due.pop(group, None)

        return end

    def close(self) -> None:
        self._unsubscribe()
        if self._round is not None:
            self._round.cancel()

    def _changed(self, groups: frozenset[str]) -> None:
        for group in groups:
            if (known := self._groups.get(group)) is not None:
                known.change += 1
                self._due[group] = None
        self._again()

    def _again(self) -> None:
        if self._due and self._round is None:
            self._round = self._loop.call_later(self._period, self._ring)

    def _ring(self) -> None:
        """One round. A group goes to the end of the line after each of its listeners, so that none waits for another's
        crowd."""
        self._round = None
        now, left = self._loop.time(), ROUND
        line = list(self._due)
        while line and left:
            later: list[str] = []
            for name in line:
                callback = self._next(name, now) if left else None
                if callback is not None:
                    left -= 1
                    later.append(name)
                    self._due.move_to_end(name)
                    callback()
            line = later
        self._again()

    def _next(self, name: str, now: float) -> Callback | None:
        """Whom of this group to ring now, if anybody. The group is not due any more once all have heard."""
        known = self._groups.get(name)
        if known is None:
            return None
        callback, heard = next(iter(known.listeners.items()))
        if heard.change == known.change:
            self._due.pop(name, None)  # not there, if a callback of this round has ended and begun anew
            return None
        if heard.at + self._every > now:
            return None
        heard.change, heard.at = known.change, now
        known.listeners.move_to_end(callback)
        return callback
