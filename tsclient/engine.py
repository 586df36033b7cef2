# SPDX-License-Identifier: Apache-2.0
"""Between those who wait for turns, in threads or coroutines, and the link to where their session is.

Orders go out from any thread, the news come in by one thread, the link's. No lock is taken anywhere: each step on
a record is one of the interpreter's own, and the order of the steps is such that an interrupt between any two of
them leaves nothing behind.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tsclient import news
from tsclient.deadlines import Deadlines
from tsclient.errors import (
    AcquireTimeout,
    ClientClosed,
    LockLost,
    NotHolder,
    TimesliceError,
    Unavailable,
)
from tsclient.link import Link
from tsclient.news import Ended, Failed, GivenBack, Granted, Lost, Moved, News, Opened, Trouble, Withdrawn
from tsclient.orders import Acquire, Close, GiveBack, GiveUp, Keep, Noticed, Order
from tsclient.progress import OnProgress
from tsclient.turn import AnyTurn, Ending
from tsclient.waiting import Inbox, Steps
from tsclient.want import Want

_log = logging.getLogger("tsclient")

CANCEL_WAIT = 5.0  # s that a caller whose time is up waits to be told that its ticket is gone

OnLost = Callable[[LockLost], object]
_Turn = TypeVar("_Turn", bound=AnyTurn)

Reply = AnyTurn | Moved | GivenBack | Withdrawn | Opened | Ended | TimesliceError


@dataclass(frozen=True, slots=True)
class Request(Generic[_Turn]):
    """An acquire, as its caller means it.

    Attributes:
        turn: of which kind it is to be.
        kill: end this process, should the turn be lost.
        on_lost: called in the link's thread, should the turn be lost.
    """

    want: Want
    turn: type[_Turn]
    kill: bool = False
    on_lost: OnLost | None = None
    began: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class _Record:
    """One acquire and the turn that came of it, until nothing of it is left.

    Attributes:
        inbox: of who waits for the acquire, or for the yield.
        ending: of the turn. Not the turn itself: one that nobody has any more is to be noticed and given back.
    """

    request: Request[Any]
    slot: int
    inbox: Inbox[Reply] | None
    ending: Ending | None = None
    given_up: bool = False
    returning: bool = False
    lost: bool = False


class Engine:
    """The acquires and turns of one session."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._keys = itertools.count(1)
        self._records: dict[int, _Record] = {}
        self._opening: list[Inbox[Reply]] = []
        self._closing: list[Inbox[Reply]] = []
        self._closed = False  # its close has been asked for
        self._last_trouble: TimesliceError | None = None
        self._end_error: TimesliceError | None = None
        self.ended = False  # any thread may read it

    @property
    def deadlines(self) -> Deadlines:
        return self._link.deadlines

    @property
    def waiting(self) -> int:
        """How many wait for a turn at present."""
        return sum(record.ending is None for record in list(self._records.values()))

    # ------------------------------------------------------------ steps of a caller

    def opening(self, inbox: Inbox[Reply], timeout: float) -> Steps[Reply, None]:
        """Start the session, and wait until it is open."""
        self._opening.append(inbox)
        self._link.start(self.take, self.standing)
        match (yield time.monotonic() + timeout):
            case None:
                cause = self._last_trouble
                raise Unavailable(
                    f"No coordinator has opened a session in {timeout:g} s: "
                    + (str(cause) if cause else "none has answered.")
                ) from cause
            case TimesliceError() as error:
                raise error

    def acquiring(
        self, inbox: Inbox[Reply], request: Request[_Turn], timeout: float | None, on_progress: OnProgress | None
    ) -> Steps[Reply, _Turn]:
        """See `Client.acquire`. However it ends but by its return, no ticket is left behind."""
        self._check_open()
        want, deadline = request.want, math.inf if timeout is None else request.began + timeout
        key = next(self._keys)
        try:
            slot = self.deadlines.take()
            self._records[key] = _Record(request, slot, inbox)
            self._link.post(Acquire(key, slot, want, request.kill))
            self._check_open()  # it may have ended while this was on its way
            while isinstance(reply := (yield deadline), Moved):
                if on_progress is not None:
                    on_progress(reply.progress)
        except BaseException:
            # Interrupted, or told off by its own callback. It must not wait now: others will see it through.
            self.drop(key)
            raise
        if isinstance(reply, request.turn):
            return reply
        if isinstance(reply, TimesliceError):
            raise reply
        if reply is not None:
            raise AssertionError(f"no answer to an acquire: {reply}")
        self.drop(key)
        yield from self._settling()
        raise AcquireTimeout(f"{want.job} had no turn in {', '.join(want.groups)} within {timeout or 0:g} s.")

    def _check_open(self) -> None:
        if self.ended:
            raise self._end_error or ClientClosed("The client is closed.")

    def _settling(self) -> Steps[Reply, None]:
        deadline = time.monotonic() + CANCEL_WAIT
        while True:
            match (yield deadline):
                case None:
                    _log.warning("a cancel is not confirmed yet; the next heartbeat drops the ticket")
                    return
                case Withdrawn() | TimesliceError():
                    return
                case _:
                    pass  # crossed on its way

    def returning(self, inbox: Inbox[Reply], key: int, timeout: float) -> Steps[Reply, int | None]:
        """See `Turn.yield_`."""
        record = self._records.get(key)
        if record is None or record.lost:
            return None  # it ended while this was on its way; the turn's own ending says how
        try:
            record.inbox, record.returning = inbox, True
            self._link.post(GiveBack(key))
            reply = yield time.monotonic() + timeout
        except BaseException:
            self.drop(key)
            raise
        match reply:
            case GivenBack(waiters=waiters):
                return waiters
            case TimesliceError() as error:
                raise error
            case None:
                self.drop(key)
                raise Unavailable(
                    f"The turn was given back, which was not confirmed in {timeout:g} s.",
                    next_step="Nothing is to be done: the next heartbeat, or the session's end, sees to it.",
                )
            case other:
                raise AssertionError(f"no answer to a yield: {other}")

    def closing(self, inbox: Inbox[Reply], timeout: float) -> Steps[Reply, bool]:
        """Give everything back and end the session; whether that was confirmed in time."""
        self._closing.append(inbox)
        self._closed = True
        if self.ended:
            return True
        self._link.post(Close())
        confirmed = (yield time.monotonic() + timeout) is not None
        if not confirmed:
            self._ended(None)
        self._link.leave()
        return confirmed

    # ------------------------------------------------------------ from any thread, without waiting

    def noticed(self, key: int) -> None:
        """The owner of a lost turn knows of it."""
        record = self._records.get(key)
        if record is not None and not self.ended:
            record.given_up = True
            self._link.post(Noticed(key))
            if record.lost:
                self._records.pop(key, None)

    def drop(self, key: int) -> None:
        """Give up an acquire, or a turn that nobody has any more."""
        record = self._records.get(key)
        if record is None or self.ended:
            return
        record.given_up = True
        if record.ending is not None:
            record.ending.set(NotHolder("It was given up."))
        self._link.post(GiveUp(key))

    # ------------------------------------------------------------ in the link's thread

    def take(self, told: Sequence[News]) -> None:
        """The session's news, in order."""
        for one in told:
            match one:
                case Opened():
                    self._answer_all(self._opening, one)
                case Trouble(error=error):
                    self._last_trouble = error
                case Ended(error=error):
                    self._ended(error)
                case _ if (record := self._records.get(one.key)) is not None:
                    self._of_one(one, record)
                case _:
                    pass  # given up long ago

    def standing(self) -> list[Order]:
        """All that is wanted at present, for a session's new keeper."""
        orders: list[Order] = []
        for key, record in list(self._records.items()):
            kill = record.request.kill
            if record.ending is None and not record.given_up:
                orders.append(Acquire(key, record.slot, record.request.want, kill))
            elif record.lost or (record.ending is not None and not record.given_up):
                orders.append(Keep(key, record.slot, kill, held=not record.lost))
            if record.given_up and not record.lost:
                orders.append(GiveUp(key))
            elif record.returning:
                orders.append(GiveBack(key))
        if self._closed:
            orders.append(Close())
        return orders

    def _of_one(self, one: news.OfOne, record: _Record) -> None:
        match one:
            case Granted():
                self._granted(one, record)
            case Moved():
                if record.inbox is not None:
                    record.inbox.put(one)
            case Lost(error=lost):
                record.lost = True
                self._over(one.key, record, lost, stays=not record.given_up)
                self._answer(record, lost)
                self._call_on_lost(record, lost)
            case Failed(error=error):
                self._over(one.key, record, error)
                self._answer(record, error)
            case GivenBack() | Withdrawn() if not record.lost:
                self._over(one.key, record, NotHolder("It was given back."))
                self._answer(record, one)
            case _:
                pass  # the last of a lost turn's old ticket is gone

    def _granted(self, granted: Granted, record: _Record) -> None:
        request = record.request
        waited = time.monotonic() - request.began
        turn = request.turn(self, granted.key, record.slot, request.want.job, granted.grants, waited)
        record.ending = turn.ending
        if record.given_up:  # by one who may not have seen the ending yet
            turn.ending.set(NotHolder("It was given up."))
            return
        self._answer(record, turn)

    def _over(self, key: int, record: _Record, error: TimesliceError, *, stays: bool = False) -> None:
        """Nothing is left of it but, for a lost one, that its owner has to know."""
        if record.ending is not None:
            record.ending.set(error)
        if not stays:
            self._records.pop(key, None)
        # Last: from now on somebody else's deadline may be there.
        self.deadlines.free(record.slot)

    def _answer(self, record: _Record, reply: Reply) -> None:
        inbox, record.inbox = record.inbox, None
        if inbox is not None:
            inbox.put(reply)

    def _call_on_lost(self, record: _Record, lost: LockLost) -> None:
        if record.request.on_lost is None:
            return
        try:
            record.request.on_lost(lost)
        except Exception:  # noqa: BLE001 - it is the caller's own, and the library goes on
            _log.exception("the callback for a lost turn has failed")

    def _ended(self, error: TimesliceError | None) -> None:
        self.ended, self._end_error = True, error
        cause = error or ClientClosed("The client is closed.")
        for key, record in list(self._records.items()):
            self._over(key, record, cause)
            self._answer(record, cause)
        self._answer_all(self._opening, cause)
        self._answer_all(self._closing, Ended(error))

    def _answer_all(self, inboxes: list[Inbox[Reply]], reply: Reply) -> None:
        for inbox in inboxes:
            inbox.put(reply)
        inboxes.clear()
