# SPDX-License-Identifier: Apache-2.0
"""A waiter gives up: its ticket goes at once, and the one behind it loses nothing."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from random import Random

import tsclient as ts
from chaos.checkers import Violation
from chaos.observer import Observer, Seen
from chaos.plain import plain_session
from chaos.scenarios.scenario import NS, WITHIN, Figures, Run, Scenario, judged, observer, spread
from chaos.world import World
from ledger.keys import Kind
from ledger.records import TicketState
from timeslice_proto.v1 import coordinator_pb2

_HOLDER, _LEAVER, _BEHIND = "holder", "leaver", "behind"
_TIMEOUT = 0.5
_WAYS = ("its own timeout", "a cancelled call")


class _Queue:
    """A holder, a waiter that will give up, and one behind it: each a client with a session of its own."""

    def __init__(self, world: World, eyes: Observer, stack: ExitStack) -> None:
        self._group, self._eyes = world.group, eyes
        self._clients = {
            job: stack.enter_context(ts.connect(world.endpoints, job=job)) for job in (_HOLDER, _LEAVER, _BEHIND)
        }
        self._stub = stack.enter_context(world.coordinator(1))
        self._session = plain_session(self._stub, ttl=600.0)
        self._calls = 0
        self._pool = stack.enter_context(ThreadPoolExecutor(2))

    def once(self, way: str) -> tuple[float, int]:
        """The leaver gives up, then the holder yields, then the one behind has its turn.

        Returns how many seconds its ticket outlived that, and the revision at which it went. Raises TimeoutError if it
        stays, or if the one behind is not granted.
        """
        turn = self._clients[_HOLDER].acquire(self._group, timeout=WITHIN)
        start = self._eyes.seen[-1].revision
        at, served = self._time_out(start) if way == _WAYS[0] else self._cancel(start)
        gone = self._wait(_LEAVER, None, start)
        turn.yield_()
        served.result(WITHIN)
        return (gone.mono - at) / NS, gone.revision

    def _time_out(self, start: int) -> tuple[int, Future[None]]:
        began = time.monotonic_ns()
        leaving = self._pool.submit(self._gives_up)
        self._wait(_LEAVER, TicketState.WAITING, start)
        served = self._queue_behind(start)
        leaving.result(WITHIN)
        return began + int(_TIMEOUT * NS), served

    def _gives_up(self) -> None:
        try:
            self._clients[_LEAVER].acquire(self._group, timeout=_TIMEOUT)
        except ts.AcquireTimeout:
            return
        raise AssertionError("the leaver was granted, although the holder had not yielded")

    def _cancel(self, start: int) -> tuple[int, Future[None]]:
        self._calls += 1
        acquire = coordinator_pb2.AcquireRequest(sequence=self._calls, job=_LEAVER, groups=[self._group])
        request = coordinator_pb2.AcquireCall(
            session=self._session.session, secret=self._session.secret, acquire=acquire
        )
        call = self._stub.Acquire.future(request, timeout=WITHIN)
        self._wait(_LEAVER, TicketState.WAITING, start)
        served = self._queue_behind(start)
        at = time.monotonic_ns()
        call.cancel()
        return at, served

    def _queue_behind(self, start: int) -> Future[None]:
        def take_turn() -> None:
            self._clients[_BEHIND].acquire(self._group, timeout=WITHIN).yield_()

        served = self._pool.submit(take_turn)
        self._wait(_BEHIND, TicketState.WAITING, start)
        return served

    def _wait(self, job: str, state: TicketState | None, after: int) -> Seen:
        """Until the ticket of ``job`` is in that state; None: gone."""

        def wanted(one: Seen) -> bool:
            found = one.ticket.state if one.ticket else None
            return one.place.kind is Kind.TICKET and one.place.name == job and found is state

        return self._eyes.wait_for(wanted, WITHIN, after=after)


def _cancel_waiter(run: Run) -> tuple[list[str], list[Violation]]:
    random = Random(run.seed)
    took: dict[str, list[float]] = {way: [] for way in _WAYS}
    found: list[Violation] = []
    with World(replicas=2) as world, observer(world) as eyes, ExitStack() as stack:
        queue = _Queue(world, eyes, stack)
        while sum(map(len, took.values())) < run.count and not run.over:
            way = random.choice(_WAYS)
            try:
                seconds, revision = queue.once(way)
            except TimeoutError as error:
                found.append(Violation("who gives up is gone, and nobody else", f"{way}: {error}"))
                break
            took[way].append(seconds)
            run.say(f"{way}: its ticket was gone after {seconds * 1000:.1f} ms, at revision {revision}")
        given_up = {way: len(seconds) for way, seconds in took.items()}
        count = sum(given_up.values())
        run.note(Figures(0, count, given_up, tuple(one for seconds in took.values() for one in seconds)))
        facts, violations = judged(world, eyes, excused=(_LEAVER,))
    times = [f"gone from the queue after {way}: {spread(seconds)}" for way, seconds in took.items()]
    return [*times, *facts], [*found, *violations]


CANCEL_WAITER = Scenario(
    "cancel-waiter",
    "A waiter that gives up leaves no ghost: its ticket is gone at once, and the next is served.",
    20,
    _cancel_waiter,
)
