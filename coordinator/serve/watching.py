# SPDX-License-Identifier: Apache-2.0
"""WatchGroups: what there is, then each group that changes, as it is by the time the client can take it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coordinator.decide.commands import Refusal
from coordinator.serve import look
from coordinator.serve.services import Services
from timeslice_proto.v1 import coordinator_pb2


class GroupWatch:
    """One watch. A slow client is spared the states in between: at most one message for each group is due."""

    def __init__(self, services: Services, names: frozenset[str]) -> None:
        self._services = services
        self._names = names
        self._due: dict[str, None] = {}  # in the order of the changes
        self._wake = asyncio.Event()
        self._shown: set[str] = set()
        self._ending: Exception | None = None

    def end(self, error: Exception) -> None:
        self._ending = error
        self._wake.set()

    async def run(self, write: Callable[[coordinator_pb2.Group], Awaitable[None]]) -> None:
        """Write until the client leaves.

        Raises:
            Refusal: the replica leaves.
        """
        engine = self._services.engine
        self._services.registry.enter(self)
        unsubscribe = engine.subscribe(self._changed)
        try:
            self._changed(frozenset(engine.picture.group_names()))
            while self._ending is None:
                while self._due:
                    name = next(iter(self._due))
                    del self._due[name]
                    if (group := self._look(name)) is not None:
                        await write(group)
                await self._wake.wait()
                self._wake.clear()
            raise self._ending
        finally:
            unsubscribe()
            self._services.registry.leave(self)

    def _changed(self, groups: frozenset[str]) -> None:
        for name in sorted(groups):
            if not self._names or name in self._names:
                self._due[name] = None
        self._wake.set()

    def _look(self, name: str) -> coordinator_pb2.Group | None:
        picture = self._services.engine.picture
        try:
            group = look.group(picture, name)
        except Refusal:
            if name not in self._shown:
                return None
            self._shown.discard(name)
            return coordinator_pb2.Group(name=name, revision=picture.revision, deleted=True)
        self._shown.add(name)
        return group
