# SPDX-License-Identifier: Apache-2.0
"""The streams and blocking calls that a replica serves: one stream for each session, and an end to all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from coordinator.decide.commands import Refusal
from coordinator.errors import answer_to

log = logging.getLogger(__name__)

R = TypeVar("R")


class Served(Protocol):
    """A stream or a blocking call."""

    def end(self, error: Exception) -> None:
        """End it for this reason, soon; what it is writing is finished."""


class Registry:
    """Knows what is served.

    Attributes:
        leaving: the replica is shutting down and takes nothing new.
    """

    def __init__(self) -> None:
        self.leaving = False
        self._left = 0
        self._streams: dict[str, Served] = {}
        self._all: set[Served] = set()
        self._writes: set[asyncio.Task[Any]] = set()

    def enter(self, served: Served, session: str = "") -> None:
        """Note what is served. With a session it is its stream: an older one ends with SESSION_TAKEN.

        Raises:
            Refusal: REPLICA_LEAVING.
        """
        if self.leaving:
            raise replica_leaving()
        self._all.add(served)
        if session:
            older = self._streams.get(session)
            self._streams[session] = served
            if older is not None:
                older.end(session_taken())

    def leave(self, served: Served, session: str = "") -> None:
        self._all.discard(served)
        self._left += bool(session)
        if session and self._streams.get(session) is served:
            del self._streams[session]

    def sessions(self) -> tuple[int, int]:
        """How many have a stream here, and how many streams have ended."""
        return len(self._streams), self._left

    def spawn(self, write: Coroutine[Any, Any, R], name: str) -> asyncio.Task[R]:
        """Begin a write that goes on although its caller may leave. `drain` waits for it; its failure is logged."""
        task = asyncio.create_task(write, name=name)
        self._writes.add(task)
        task.add_done_callback(self._written)
        return task

    async def carry_out(self, task: asyncio.Task[Any], write: Coroutine[Any, Any, None]) -> None:
        """As `spawn`, by a task that runs already."""
        self._writes.add(task)
        try:
            await write
        except BaseException:
            task.add_done_callback(self._written)
            raise
        self._writes.discard(task)

    async def drain(self, within: float) -> None:
        """Send everybody to another replica, and wait at most so many seconds for writes in flight."""
        self.leaving = True
        for served in tuple(self._all):
            served.end(replica_leaving())
        if self._writes:
            _, late = await asyncio.wait(tuple(self._writes), timeout=within)
            for task in late:
                log.warning("A write is given up after %g s: %s.", within, task.get_name())
                task.cancel()

    def _written(self, task: asyncio.Task[Any]) -> None:
        self._writes.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if answer_to(error) is None:
            log.error("It failed in a way that nobody foresaw: %s.", task.get_name(), exc_info=error)
        else:
            log.warning("It was not carried out: %s: %s", task.get_name(), error)


def session_taken() -> Refusal:
    return Refusal("SESSION_TAKEN", "A newer stream has resumed the session.")


def replica_leaving() -> Refusal:
    return Refusal("REPLICA_LEAVING", "This replica is shutting down.")
