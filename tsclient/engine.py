# SPDX-License-Identifier: Apache-2.0
"""Between the callers' threads and the session: calls go in as posted steps, results come back in a queue.

Everything that changes the session runs in the transport's thread. A caller owns a `_Call`, whose inbox is
filled by that thread; the turn's deadline is published as one number that any thread may read.
"""

from __future__ import annotations

import logging
import math
import queue
import random
import time

from timeslice_proto.v1 import coordinator_pb2
from tsclient.clock import boottime
from tsclient.errors import (
    AcquireTimeout,
    ClientClosed,
    InternalError,
    NotHolder,
    TimesliceError,
    Unavailable,
)
from tsclient.identity import this_process
from tsclient.progress import OnProgress
from tsclient.session import Session
from tsclient.session_records import (
    Ended,
    Failed,
    GivenBack,
    Granted,
    HangUp,
    Lost,
    Moved,
    Opened,
    Output,
    Send,
    Want,
    Withdrawn,
)
from tsclient.settings import Settings
from tsclient.transport import Transport
from tsclient.turn import Ending, Turn

_log = logging.getLogger("tsclient")

CANCEL_WAIT = 5.0  # s that a caller whose time is up waits to be told that its ticket is gone

_Reply = Turn | Moved | GivenBack | Withdrawn | Opened | Ended | TimesliceError


class _Call:
    """One waiting caller. `SimpleQueue` can be interrupted at any point and stays sound."""

    def __init__(self, want: Want | None = None) -> None:
        self.want = want
        self.key: int | None = None
        self.began = time.monotonic()
        self.inbox: queue.SimpleQueue[_Reply] = queue.SimpleQueue()

    def next(self, deadline: float) -> _Reply | None:
        """What comes next; None if the deadline (monotonic, s) comes first."""
        try:
            if deadline == math.inf:
                return self.inbox.get()
            return self.inbox.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None


class Engine:
    """One session, and those who wait for something of it."""

    def __init__(self, settings: Settings) -> None:
        self._session = Session(this_process(), settings.ttl)
        self._transport = Transport(settings, self, random.Random())
        self._calls: dict[int, _Call] = {}
        # Not the turns themselves: one that nobody holds any more is to be noticed and given back.
        self._endings: dict[int, Ending] = {}
        self._opening: list[_Call] = []
        self._closing: list[_Call] = []
        self._last_trouble: TimesliceError | None = None
        self._end_error: TimesliceError | None = None
        self.proof = -math.inf  # until when held turns are proved; any thread may read it
        self.ended = False  # any thread may read it

    # ------------------------------------------------------------ from the callers' threads

    def open(self, timeout: float) -> None:
        """Start the stream and wait for the session."""
        call = _Call()
        self._opening.append(call)
        self._transport.start()
        match call.next(time.monotonic() + timeout):
            case None:
                cause = self._last_trouble
                raise Unavailable(
                    f"No coordinator has opened a session in {timeout:g} s: "
                    + (str(cause) if cause else "none has answered.")
                ) from cause
            case TimesliceError() as error:
                raise error
            case _:
                return

    def acquire(self, want: Want, timeout: float | None, on_progress: OnProgress | None) -> Turn:
        """See `Client.acquire`. However it ends but by its return, no ticket is left behind."""
        call = _Call(want)
        try:
            self._transport.post(lambda: self._acquire(call))
            reply = self._reply(call, math.inf if timeout is None else call.began + timeout, on_progress)
        except BaseException:
            # Interrupted, or told off by its own callback. It must not wait now: others will see it through.
            self._give_up_soon(call)
            raise
        match reply:
            case Turn():
                return reply
            case TimesliceError():
                raise reply
            case None:
                self._give_up_soon(call)
                self._settle(call)
                raise AcquireTimeout(f"{want.job} had no turn in {', '.join(want.groups)} within {timeout or 0:g} s.")
            case _:
                raise AssertionError(f"no answer to an acquire: {reply}")

    def _reply(self, call: _Call, deadline: float, on_progress: OnProgress | None) -> _Reply | None:
        while True:
            reply = call.next(deadline)
            if not isinstance(reply, Moved):
                return reply
            if on_progress is not None:
                on_progress(reply.progress)

    def _give_up_soon(self, call: _Call) -> None:
        if not self.ended:
            self._transport.post(lambda: self._give_up(call))

    def _settle(self, call: _Call) -> None:
        deadline = time.monotonic() + CANCEL_WAIT
        while True:
            match call.next(deadline):
                case None:
                    _log.warning("a cancel is not confirmed yet; the next heartbeat drops the ticket")
                    return
                case Withdrawn() | TimesliceError():
                    return
                case _:
                    pass  # crossed on its way

    def yield_turn(self, key: int, timeout: float) -> int | None:
        """See `Turn.yield_`."""
        call = _Call()
        call.key = key
        self._transport.post(lambda: self._yield(call, key))
        match call.next(call.began + timeout):
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

    def noticed(self, key: int) -> None:
        """The owner of a lost turn knows of it."""
        if not self.ended:
            self._transport.post(lambda: self._noticed(key))

    def drop(self, key: int) -> None:
        """Give back a turn that nobody has any more. Takes no lock: finalizers call it."""
        self._transport.post(lambda: self._do(self._session.give_up(boottime(), key)))

    def close(self, timeout: float) -> bool:
        """Give everything back and end the stream; whether that was confirmed in time."""
        call = _Call()
        deadline = call.began + timeout
        self._transport.post(lambda: self._close(call))
        confirmed = call.next(deadline) is not None
        self._transport.post(self._transport.stop)
        self.ended = True
        return self._transport.join(max(0.1, deadline - time.monotonic())) and confirmed

    # ------------------------------------------------------------ in the thread: calls

    def _acquire(self, call: _Call) -> None:
        if call.want is None:
            raise AssertionError("an acquire wants something")
        if self.ended:
            call.inbox.put(self._end_error or ClientClosed("The client is closed."))
            return
        try:
            call.key, outputs = self._session.acquire(boottime(), call.want)
        except TimesliceError as error:
            call.inbox.put(error)
            return
        except Exception as error:
            call.inbox.put(InternalError(f"The client has failed: {error!r}."))
            raise
        self._calls[call.key] = call
        self._do(outputs)

    def _give_up(self, call: _Call) -> None:
        if call.key is not None:
            ending = self._endings.get(call.key)
            if ending is not None:
                ending.set(NotHolder("The acquire was given up."))
            self._do(self._session.give_up(boottime(), call.key))

    def _yield(self, call: _Call, key: int) -> None:
        ending = self._endings.get(key)
        if ending is None or ending.error is not None:
            # It ended while this was on its way; the caller's own copy says how.
            call.inbox.put(GivenBack(key, None))
            return
        self._calls[key] = call
        self._do(self._session.yield_(boottime(), key))

    def _noticed(self, key: int) -> None:
        now = boottime()
        # Whoever noticed by the deadline alone may be ahead of the session, which then still holds the turn.
        self._do(self._session.give_up(now, key))
        self._do(self._session.noticed(now, key))

    def _close(self, call: _Call) -> None:
        if self.ended:
            call.inbox.put(Ended(self._end_error))
            return
        self._closing.append(call)
        self._do(self._session.close(boottime()))

    # ------------------------------------------------------------ in the thread: the transport's news

    def connected(self) -> None:
        self._do(self._session.connected(boottime()))

    def disconnected(self, error: TimesliceError) -> None:
        self._last_trouble = error
        self._do(self._session.disconnected(boottime(), error))

    def event(self, event: coordinator_pb2.SessionEvent) -> None:
        self._do(self._session.event(boottime(), event))

    def tick(self) -> None:
        self._do(self._session.tick(boottime()))

    def crashed(self, error: TimesliceError) -> None:
        """The thread cannot go on: everybody who waits is told."""
        self.proof, self.ended, self._end_error = -math.inf, True, error
        for call in [*self._calls.values(), *self._opening, *self._closing]:
            call.inbox.put(error)
        self._calls.clear()

    # ------------------------------------------------------------ in the thread: what is to be done

    def _do(self, outputs: list[Output]) -> None:
        self.proof = self._session.proof
        for output in outputs:
            match output:
                case Send(request=request):
                    self._transport.send(request)
                case HangUp(why=why):
                    self._transport.hang_up(why)
                case Opened():
                    self._transport.worked()
                    self._answer_all(self._opening, output)
                case Granted(key=key):
                    self._granted(output)
                case Moved(key=key):
                    self._answer(key, output)
                case GivenBack(key=key) | Withdrawn(key=key):
                    self._endings.pop(key, None)
                    self._answer(key, output)
                case Failed(key=key, error=error) | Lost(key=key, error=error):
                    ending = self._endings.pop(key, None)
                    if ending is not None:
                        ending.set(error)
                    self._answer(key, error)
                case Ended(error=ended_by):
                    self.ended, self._end_error = True, ended_by
                    self._answer_all(self._opening, ended_by or ClientClosed("The client is closed."))
                    self._answer_all(self._closing, output)
                    self._transport.stop()
        self._transport.arm(self._session.next_at())

    def _granted(self, granted: Granted) -> None:
        call = self._calls.pop(granted.key)
        if call.want is None:
            raise AssertionError("only an acquire is granted")
        grant = granted.grants[0]
        turn = Turn(
            self,
            granted.key,
            group=grant.group,
            job=call.want.job,
            token=grant.token,
            waited=time.monotonic() - call.began,
            restored=grant.restored,
        )
        self._endings[granted.key] = turn.ending
        call.inbox.put(turn)

    def _answer(self, key: int, reply: _Reply) -> None:
        call = self._calls.get(key)
        if call is None:
            return
        if not isinstance(reply, Moved):
            del self._calls[key]
        call.inbox.put(reply)

    def _answer_all(self, calls: list[_Call], reply: _Reply) -> None:
        for call in calls:
            call.inbox.put(reply)
        calls.clear()
