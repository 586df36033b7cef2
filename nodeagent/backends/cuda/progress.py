# SPDX-License-Identifier: Apache-2.0
"""How far a driver call has come: the driver does not say, so memory is looked at while the call lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from nodeagent.backends.driver import DriverError, Progress

_EVERY = 0.25


class Watched:
    """While the block lasts, tell ``progress`` every quarter of a second what ``done`` measures.

    Coarse, and never above ``total``; it never goes back. ``done`` is called in a thread of its own, and so is
    ``progress``: the caller is in the driver meanwhile.
    """

    def __init__(self, done: Callable[[], int], total: int, progress: Progress, *, every: float = _EVERY) -> None:
        self._done, self._total, self._progress, self._every = done, total, progress, every
        self._over = threading.Event()
        self._best = 0
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if kind is None and self._total:
            self._progress(self._total, self._total)

    def _run(self) -> None:
        while not self._over.wait(self._every):
            try:
                self._best = max(self._best, min(self._done(), self._total))
            except DriverError:
                return  # the call itself goes on, and will tell what is wrong if anything is
            self._progress(self._best, self._total)
