# SPDX-License-Identifier: Apache-2.0
"""TIMESLICE_DISABLED=1: everything is granted at once and nothing is asked of anybody.

So that one script runs with and without a coordinator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tsclient import deadlines
from tsclient.news import Ended, GivenBack, Grant, Granted, News, Opened, Withdrawn
from tsclient.orders import Acquire, Close, GiveBack, GiveUp, Order


class Disabled:
    """A `tsclient.link.Link` to nobody. Turns have the token 0 and are never lost."""

    def __init__(self) -> None:
        self.deadlines = deadlines.local()
        self._take: Callable[[Sequence[News]], None] = lambda _news: None

    def start(self, take: Callable[[Sequence[News]], None], standing: Callable[[], Sequence[Order]]) -> None:
        self._take = take
        take([Opened()])

    def post(self, order: Order) -> None:
        match order:
            case Acquire(key=key, slot=slot, want=want):
                self.deadlines.cells[slot] = math.inf
                self._take([Granted(key, tuple(Grant(group, 0) for group in want.groups))])
            case GiveBack(key=key):
                self._take([GivenBack(key, None)])
            case GiveUp(key=key):
                self._take([Withdrawn(key)])
            case Close():
                self._take([Ended(None)])
            case _:
                pass  # no turn is ever lost

    def leave(self) -> None: ...
