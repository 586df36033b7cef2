# SPDX-License-Identifier: Apache-2.0
"""The process that `timeslice acquire` leaves behind: it keeps a turn until it is asked to yield, or what it is bound
to has ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

import tsclient
from tsclient.cli import tickets
from tsclient.cli.tickets import Held
from tsclient.cli.waiting import Wanted
from tsclient.errors import TimesliceError

if TYPE_CHECKING:
    from tsclient.turn import Turn

_CONVERSATION = 5.0  # s; for one that has connected to say what it wants
_YIELD = 5.0  # s; for its confirmation
_LOOK = 1.0  # s; between two looks at a turn that nobody asks for


@dataclass(frozen=True, slots=True)
class Order:
    """What a keeper is started with.

    Attributes:
        bound: the pid by whose end the turn is given back; a handle of that very process is `handle`.
        report: a pipe's end for one line: that the turn is held, or why it is not.
    """

    ticket: str
    wanted: Wanted
    bound: int
    handle: int
    report: int


def main(text: str) -> None:
    """Keep the turn of an `Order` in JSON, to its end."""
    fields = json.loads(text)
    order = Order(**{**fields, "wanted": Wanted(**fields["wanted"])})
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reported = threading.Event()
    threading.Thread(target=_watch, args=(order, reported), name="watches", daemon=True).start()
    with _listening(order.ticket) as listening:
        try:
            _keep(order, listening, reported)
        except TimesliceError as error:
            _report(order, tickets.answer_of(error))


def _keep(order: Order, listening: socket.socket, reported: threading.Event) -> None:
    want = order.wanted
    with tsclient.connect(want.endpoints, want.job, want.ttl, connect_timeout=want.timeout) as client:
        turn = client.acquire(want.group, timeout=want.wait, priority=want.priority, if_held=want.if_held)
        reported.set()
        if _report(order, tickets.answer_of(_held(order, turn))):
            while not _converse(order, turn, listening):
                pass


def _converse(order: Order, turn: Turn, listening: socket.socket) -> bool:
    """Answer one that asks, if one does; whether the turn was given back by it."""
    try:
        connection, _ = listening.accept()
    except TimeoutError:
        if turn.lost:
            _status(order, turn)  # to have seen it gives up the place that the job has been given again
        return False
    with connection:
        connection.settimeout(_CONVERSATION)
        try:
            asked = tickets.receive(connection)
        except (OSError, ValueError):
            asked = None
        if asked is None:
            return False  # it has hung up without a question
        yields = asked.get("ask") == "yield"
        outcome = _yield(order, turn) if yields else _status(order, turn)
        with contextlib.suppress(OSError):  # it did not wait for the answer: what it asked for is done all the same
            tickets.send(connection, tickets.answer_of(outcome))
        return yields


def _status(order: Order, turn: Turn) -> Held | TimesliceError:
    try:
        turn.check()
    except TimesliceError as error:
        return error
    return _held(order, turn)


def _yield(order: Order, turn: Turn) -> Held | TimesliceError:
    try:
        return _held(order, turn, turn.yield_(_YIELD))
    except TimesliceError as error:
        return error  # unconfirmed, it ends with the session, which is closed next


def _held(order: Order, turn: Turn, waiters: int | None = None) -> Held:
    return Held(order.ticket, turn.group, turn.job, turn.token, order.bound, os.getpid(), waiters)


def _watch(order: Order, reported: threading.Event) -> None:
    """End this process with the one that it is bound to; before the report, with the one that waits for that."""
    poll = select.poll()
    poll.register(order.handle, select.POLLIN)
    poll.register(order.report, 0)  # an error alone: that nobody reads any more
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == order.handle or not reported.is_set():
                os.kill(os.getpid(), signal.SIGTERM)
                return
            poll.unregister(order.report)


def _report(order: Order, answer: dict[str, object]) -> bool:
    """Whether anybody has heard it."""
    try:
        os.write(order.report, json.dumps(answer).encode() + b"\n")
    except BrokenPipeError:
        return False
    return True


@contextlib.contextmanager
def _listening(ticket: str) -> Iterator[socket.socket]:
    path = tickets.socket_of(ticket)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        try:
            listening.listen()
            listening.settimeout(_LOOK)
            yield listening
        finally:
            path.unlink(missing_ok=True)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)  # what is held or waited for is given back on the way out
