# SPDX-License-Identifier: Apache-2.0
"""The helper's own program: sessions in one event loop, orders from the parent, news to it.

It ends when the parent does, in a bounded time: the sessions are ended first, at once, so that the accelerators of
a job that was killed are free for others without waiting for its time to live. Without sessions it ends by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tsclient import deadlines
from tsclient.entry import Entry, Saved
from tsclient.helper.notes import Notes
from tsclient.helper.parent import Parent
from tsclient.helper.wire import Incoming, pack, split, unpack
from tsclient.identity import process
from tsclient.news import News
from tsclient.orders import Order
from tsclient.runner import Legacy, Runner
from tsclient.settings import Settings

IDLE = 5.0  # s without a session until it ends

_log = logging.getLogger("tsclient")


def main(socket_fd: int, memory_fd: int, notes_fd: int, parent_pid: int) -> None:
    """Run until the parent has ended or nothing is to be done. Never returns."""
    # It has its own session, so a terminal's signals do not reach it; a scheduler's do, and it has to outlive a
    # parent that still saves its work.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=socket_fd) as ours:
        status = 1
        try:
            asyncio.run(Helper(ours, memory_fd, Notes(notes_fd), Parent(parent_pid)).run())
            status = 0
        except ProcessLookupError:
            status = 0  # the parent was faster: there is no session yet
        except BaseException as error:  # noqa: BLE001 - it has no other way to say it
            ours.setblocking(True)
            ours.settimeout(1.0)
            ours.send(pack(["crash", repr(error)]))
        finally:
            os._exit(status)  # gRPC's threads are not waited for


@dataclass(slots=True)
class _Client:
    """One session of the parent.

    Attributes:
        place: of its notes; None: it has none, and everything is said.
        stamp: of the newest state that was said or noted.
        head: of the session, for its runner; ``told_head`` is as it was last said.
        unsaid: the keys of the entries that have changed since they were last said; all of it is noted.
    """

    number: int
    settings: Settings
    head: Saved | None
    place: int | None
    stamp: int
    entries: list[Entry] = field(default_factory=list)
    names: dict[int, int] = field(default_factory=dict)
    orders: list[Order] = field(default_factory=list)
    runner: Runner | None = None
    told_head: tuple[str, str, float] | None = None
    unsaid: set[int] = field(default_factory=set)


class Helper:
    """See the module."""

    def __init__(self, ours: socket.socket, memory_fd: int, notes: Notes, parent: Parent) -> None:
        self._socket = ours
        self._incoming = Incoming(ours)
        self._cells = deadlines.cells(memory_fd)
        self._notes = notes
        self._parent = parent
        self._process = process(parent.pid)
        self._clients: dict[int, _Client] = {}
        self._late: deque[bytes] = deque()  # what the parent has not taken yet
        self._held_up = False  # by the parent, until it takes more
        self._gone = asyncio.Event()
        self._idle: asyncio.TimerHandle | None = None
        self._finished = asyncio.Event()

    async def run(self) -> None:
        """Serve the parent to its end."""
        loop = asyncio.get_running_loop()
        self._socket.setblocking(False)
        logging.getLogger().addHandler(_ToParent(self._send))
        loop.add_reader(self._socket, self._read)
        if self._parent.pidfd is not None:
            loop.add_reader(self._parent.pidfd, self._gone.set)
        self._rest_if_idle()
        ends = [asyncio.ensure_future(self._gone.wait()), asyncio.ensure_future(self._finished.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        loop.remove_reader(self._socket)
        if self._parent.pidfd is not None:
            loop.remove_reader(self._parent.pidfd)
        await self._wind_up()

    async def _wind_up(self) -> None:
        """End what the parent has left behind, or let it expire if no coordinator can be told.

        A parent that has closed its socket and lives on, as the program that it was, may have another helper by
        now: then nothing is touched. A close that was asked for is seen through in any case.
        """
        lives = self._parent.is_there()
        runners = [client.runner for client in self._clients.values() if client.runner is not None]
        for runner in runners:
            if not lives:
                runner.abandon()
            elif not runner.closing:
                runner.stop()
        if runners:
            stopped = [asyncio.ensure_future(runner.stopped()) for runner in runners]
            await asyncio.wait(stopped, timeout=max(client.settings.ttl for client in self._clients.values()))

    # ------------------------------------------------------------ from the parent

    def _read(self) -> None:
        try:
            packet = self._incoming.next()
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if packet:
            self._take(*split(packet))
        else:
            # Closed without its end: by an exec, or by an exit whose news is about to come by the pidfd.
            self._gone.set()

    def _take(self, message: bytes, *kept: bytes) -> None:
        match unpack(message):
            case ["open", int(number), Settings() as settings, place, int(stamp), last]:
                head = Saved(*unpack(kept[0]), *last) if kept else None
                self._clients[number] = _Client(number, settings, head, place, stamp)
                self._rest_if_idle()
            case [_, int(number), *_] if number not in self._clients:
                pass  # it has left
            case ["entry", int(number)]:
                client = self._clients[number]
                name, plain = unpack(kept[0])
                entry = Entry.of(plain)
                client.entries.append(entry)
                if name is not None:
                    client.names[entry.key] = name
            case ["order", int(number), order]:
                client = self._clients[number]
                if client.runner is None:
                    client.orders.append(order)
                else:
                    client.runner.order(order)
            case ["start", int(number)]:
                self._start(self._clients[number])
            case ["leave", int(number)]:
                left = self._clients.pop(number)
                left.place = None  # another session may have it by now, and what it notes there is not to be lost
                if left.runner is not None:
                    left.runner.stop()
                self._rest_if_idle()
            case other:
                raise AssertionError(f"no message of the parent: {other}")

    def _start(self, client: _Client) -> None:
        legacy = None
        if client.head is not None:
            saved = replace(client.head, entries=tuple(client.entries))
            legacy = Legacy(saved, client.names, client.orders)
        client.runner = Runner(
            client.settings,
            self._process,
            self._cells,
            partial(self._tell, client),
            random.Random(),
            may_beat=self._may_beat,
            kill=self._parent.kill,
            legacy=legacy,
        )
        client.runner.start()
        if legacy is None:
            for order in client.orders:
                client.runner.order(order)

    def _may_beat(self) -> bool:
        if not self._parent.is_there():
            self._gone.set()
            return False
        return self._parent.runs()

    def _rest_if_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if not self._clients:
            self._idle = asyncio.get_running_loop().call_later(IDLE, self._finished.set)

    # ------------------------------------------------------------ to the parent

    def _tell(self, client: _Client, news: Sequence[News]) -> None:
        """The news, and what has changed of the session, in one packet: the parent has both or none.

        Without news nobody has to wake up, and a note will do; it says again what the one before did.
        """
        runner = client.runner
        assert runner is not None
        changed, head, last = runner.changed(), runner.head(), runner.last()
        new_head = head if head != client.told_head else None
        if not (news or changed or new_head):
            return
        client.unsaid |= changed
        client.stamp += 1
        put: list[int] = []
        gone: list[int] = []
        said: list[list[object]] = []
        for key in sorted(client.unsaid):  # in the order of the calls
            if (named := runner.entry(key)) is None:
                gone.append(key)
            else:
                put.append(key)
                said.append([named[0], named[1].plain()])
        if not news and self._note(client, pack([client.number, last, new_head, said, gone])):
            return
        kept = (pack(new_head) if new_head else b"", *map(pack, said))
        self._send(pack(["news", client.number, client.stamp, last, news, put, gone], *kept))
        client.told_head = head
        client.unsaid.clear()

    def _note(self, client: _Client, packet: bytes) -> bool:
        return client.place is not None and self._notes.write(client.place, client.stamp, packet)

    def _send(self, packet: bytes) -> None:
        """Never waits: the parent may stand still for long."""
        self._late.append(packet)
        self._flush()

    def _flush(self) -> None:
        try:
            while self._late:
                self._socket.send(self._late[0])
                self._late.popleft()
        except BlockingIOError:
            asyncio.get_running_loop().add_writer(self._socket, self._flush)
            self._held_up = True
            return
        except OSError:
            self._late.clear()  # the parent is gone, and its end is on its way by another line
        if self._held_up:
            asyncio.get_running_loop().remove_writer(self._socket)
            self._held_up = False


class _ToParent(logging.Handler):
    """Log lines of the helper appear in the parent's log: it has no output of its own."""

    def __init__(self, send: Any) -> None:
        super().__init__(logging.INFO)
        self._tell = send

    def emit(self, record: logging.LogRecord) -> None:
        """Called from any thread of the helper; what cannot be sent is nobody's loss."""
        if record.threadName == "MainThread":
            self._tell(pack(["log", record.levelno, self.format(record)]))
