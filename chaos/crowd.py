# SPDX-License-Identifier: Apache-2.0
"""What else goes on beside the jobs: waiters that give up in their own switch, sessions that are used, closed, left.

It runs in a thread of its own and is not judged: what fails in it is counted, and it goes on.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from random import Random

import grpc

import tsclient as ts
from chaos.beside import Beside
from chaos.observer import Observer
from chaos.plain import plain_session
from chaos.quitter import Quitter
from chaos.world import World
from timeslice_proto.v1 import coordinator_pb2

_PAUSE = 0.7
"""Seconds between two things, on average half of it."""

_WITHIN = 20.0
_JOIN_SECONDS = 90.0
_SHORT = 2.0
"""The TTL of a session that is left to expire."""

PASSER_BY = "passer-by"


class Crowd(Beside):
    """``with Crowd(world, eyes, seed) as crowd``.

    Attributes:
        done: how often each thing was done, and failed.
        rest: whoever holds it keeps the crowd from doing anything.
    """

    def __init__(self, world: World, eyes: Observer, seed: int) -> None:
        super().__init__("crowd", _JOIN_SECONDS)
        self._world, self._eyes, self._random = world, eyes, Random(seed)
        self.done: Counter[str] = Counter()
        self.rest = threading.Lock()

    def _run(self) -> None:
        while not self._ended.wait(self._random.random() * _PAUSE):
            step: Callable[[], str] = self._random.choice((self.give_up, self.use, self.leave))
            try:
                with self.rest:
                    what = step()
            except (grpc.RpcError, ts.TimesliceError, TimeoutError, RuntimeError):
                what = f"{step.__name__} failed"
            self.done[what] += 1

    def give_up(self) -> str:
        """A waiter that goes while its switch is prepared."""
        with Quitter(
            self._world.endpoints, self._world.etcd.endpoints, self._world.group, self._eyes, self._random
        ) as quitter:
            quitter.release(_WITHIN)
        return "releases"

    def use(self) -> str:
        """A client with a session of its own, which takes a turn and closes it."""
        with ts.connect(self._world.endpoints, job=PASSER_BY, connect_timeout=_WITHIN) as client:
            client.acquire(self._world.group, timeout=_WITHIN).yield_()
        return "sessions used"

    def leave(self) -> str:
        """A session that is opened, and nothing is heard of it any more; or it is closed at once."""
        with self._world.coordinator(self._random.randrange(len(self._world.endpoints))) as stub:
            opened = plain_session(stub, ttl=_SHORT)
            if self._random.random() < 0.5:
                return "sessions left to expire"
            stub.CloseSession(
                coordinator_pb2.CloseRequest(session=opened.session, secret=opened.secret), timeout=_WITHIN
            )
        return "sessions closed"
