# SPDX-License-Identifier: Apache-2.0
"""A session in this very process: its event loop is the background thread's, and gRPC is loaded here.

For services that want no second process. What it cannot do is to beat while a call into C holds the interpreter's
lock, and a process that has loaded gRPC cannot give its forked children a client.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Sequence
from functools import partial

from tsclient import background, deadlines, forks
from tsclient.deadlines import Deadlines
from tsclient.news import News
from tsclient.orders import Order
from tsclient.settings import Settings


class InProcess:
    """See `tsclient.link.Link`.

    Raises:
        ForkedClient: a parent of this process has used gRPC, which does not survive a fork.
    """

    def __init__(self, settings: Settings) -> None:
        forks.start_grpc()
        from tsclient.runner import Runner  # loads gRPC

        self._settings = settings
        self._make = Runner
        self._runner: Runner | None = None
        self._loop = background.loop()
        self.deadlines: Deadlines = deadlines.local()

    def start(self, take: Callable[[Sequence[News]], None], standing: Callable[[], Sequence[Order]]) -> None:
        self._loop.call_soon_threadsafe(self._start, take)

    def post(self, order: Order) -> None:
        self._loop.call_soon_threadsafe(self._order, order)

    def leave(self) -> None:
        self._loop.call_soon_threadsafe(self._stop)

    # ------------------------------------------------------------ in the thread

    def _start(self, take: Callable[[Sequence[News]], None]) -> None:
        from tsclient.identity import process

        kill = partial(os.kill, os.getpid(), signal.SIGKILL)
        me = process(os.getpid())
        self._runner = self._make(self._settings, me, self.deadlines.cells, take, random.Random(), kill=kill)
        self._runner.start()

    def _order(self, order: Order) -> None:
        if self._runner is not None:
            self._runner.order(order)

    def _stop(self) -> None:
        if self._runner is not None:
            self._runner.stop()
