# SPDX-License-Identifier: Apache-2.0
"""The job's side of its helper: one for the process, started with the first client, and again should it die.

Here is neither gRPC nor protobuf. A thread waits for news; orders are sent from whichever thread has one. What a
new helper needs to go on with the sessions (their secrets among it) is kept up to date here by the helper's own
words and notes, so that one that is killed costs no turn, as long as the next can beat before the deadline.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tsclient import deadlines, forks
from tsclient.deadlines import Deadlines
from tsclient.descriptors import above_standard
from tsclient.errors import HelperFailed
from tsclient.helper import notes
from tsclient.helper.notes import Notes
from tsclient.helper.wire import Incoming, pack, split, unpack
from tsclient.news import Ended, News
from tsclient.orders import Order
from tsclient.settings import Settings

_log = logging.getLogger("tsclient")

ATTEMPTS = 3  # helpers in a row that end without a word, until it is given up
REAP = 1.0  # s allowed to a helper that has closed its socket
SEND_BUFFER = 1 << 20  # bytes; the kernel may grant less

# The modules that the parent would import, and no others. The rest of its environment is the parent's too.
_PROGRAM = (
    "import json, sys; said = json.loads(sys.argv[1]); sys.path[:] = said['path']; "
    "from tsclient.helper.main import main; main(said['socket'], said['memory'], said['notes'], said['parent'])"
)


@dataclass(slots=True)
class _Session:
    """What is known here of one client's session.

    Attributes:
        place: of the helper's notes on it; None: all are taken.
        stamp: of what is known here.
        last: key and sequence number that its helper has given out.
        head, entries: the session and its entries by key, as its helper has packed them: for another one to unpack.
    """

    number: int
    place: int | None
    settings: Settings
    take: Callable[[Sequence[News]], None]
    standing: Callable[[], Sequence[Order]]
    stamp: int = 0
    last: Sequence[int] = ()
    head: bytes = b""
    entries: dict[int, bytes] = field(default_factory=dict)

    def keep(self, stamp: int, last: Sequence[int], head: bytes, put: Mapping[int, bytes], gone: Iterable[int]) -> None:
        """Its helper has said, or noted, what has changed. No head: that has not."""
        self.stamp, self.last, self.head = stamp, last, head or self.head
        self.entries.update(put)
        for key in gone:
            self.entries.pop(key, None)


class Hub:
    """The helper of this process, if it has one, and those who use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memory = deadlines.memory()
        self._noted_in = notes.memory()
        self._notes = Notes(self._noted_in)
        self._places = deque(range(notes.PLACES))
        self.deadlines = Deadlines(deadlines.cells(self._memory))
        self._sessions: dict[int, _Session] = {}
        self._numbers = 0
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._late: deque[bytes] = deque()  # what the helper has not taken yet
        self._bell = above_standard(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        self._silent = 0  # helpers in a row that ended without a word
        self._why = ""
        self._closed = False

    # ------------------------------------------------------------ from any thread

    def enter(
        self,
        settings: Settings,
        take: Callable[[Sequence[News]], None],
        standing: Callable[[], Sequence[Order]],
    ) -> int:
        """Open a session; its number."""
        with self._lock:
            self._numbers += 1
            place = self._places.popleft() if self._places else None
            session = self._sessions[self._numbers] = _Session(self._numbers, place, settings, take, standing)
            if self._socket is None:
                self._start()
            self._open(session)
            return session.number

    def post(self, number: int, order: Order) -> None:
        """Takes no lock, and never waits."""
        self._send(pack(["order", number, order]))

    def leave(self, number: int) -> None:
        """The session's end is its own affair from now on."""
        left = self._sessions.pop(number, None)
        if left is not None:
            self._send(pack(["leave", number]))
            self._free(left)

    def _free(self, left: _Session) -> None:
        """Others may have its place for notes at once: one that still comes names whose it is."""
        if left.place is not None:
            self._places.append(left.place)

    def close(self) -> None:
        """At the end of the program: let the helper go."""
        self._closed = True
        ours = self._socket
        if ours is not None:
            ours.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """In a forked child: the helper is the parent's."""
        self._closed = True
        if self._socket is not None:
            self._socket.close()
        os.close(self._bell)
        os.close(self._memory)
        os.close(self._noted_in)
        if self._process is not None:
            self._process.returncode = 0  # not ours to wait for

    # ------------------------------------------------------------ a helper's beginning

    def _start(self) -> None:
        """Start a helper and the thread that listens to it. The lock is held.

        Raises:
            HelperFailed: no process can be started.
        """
        if not sys.executable:
            raise HelperFailed("It is not known which Python to run it by: sys.executable is empty.")
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours, theirs = (socket.socket(fileno=above_standard(end.detach())) for end in pair)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        said = {
            "path": [os.path.abspath(entry) for entry in sys.path],  # noqa: PTH100 - "" is where we are
            "socket": theirs.fileno(),
            "memory": self._memory,
            "notes": self._noted_in,
            "parent": os.getpid(),
        }
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _PROGRAM, json.dumps(said)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), self._memory, self._noted_in),
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise HelperFailed(f"No helper process can be started: {error}.") from error
        ours.setblocking(False)
        self._late.clear()
        self._socket = ours
        name = f"tsclient helper {self._process.pid}"
        threading.Thread(target=self._listen, args=(ours, self._process), name=name, daemon=True).start()

    def _open(self, session: _Session) -> None:
        """Tell the helper of a session: a new one, or all that is known of it. The lock is held."""
        orders = session.standing() if session.head else ()
        kept = (session.head,) if session.head else ()
        opening = ["open", session.number, session.settings, session.place, session.stamp, session.last]
        self._send(pack(opening, *kept))
        for entry in list(session.entries.values()):
            self._send(pack(["entry", session.number], entry))
        for order in orders:
            self._send(pack(["order", session.number, order]))
        self._send(pack(["start", session.number]))

    # ------------------------------------------------------------ to the helper

    def _send(self, packet: bytes) -> None:
        """In order, and whole; what a helper does not take at once the thread sends later."""
        ours = self._socket
        if ours is None:
            return  # the next helper is told all that stands
        if self._late:
            self._later(packet)
            return
        try:
            ours.send(packet)
        except BlockingIOError:
            self._later(packet)
        except OSError as error:
            _log.debug("the helper is gone: %s", error)  # the thread sees to it

    def _later(self, packet: bytes) -> None:
        self._late.append(packet)
        os.eventfd_write(self._bell, 1)

    # ------------------------------------------------------------ in the thread

    def _listen(self, ours: socket.socket, helper: subprocess.Popen[bytes]) -> None:
        began, heard, writing = time.monotonic(), False, False
        here, incoming = ours.fileno(), Incoming(ours)
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        poll.register(here, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._bell in ready:
                self._clear_bell()
            if self._late:
                self._send_late(ours)
            if writing != bool(self._late):
                writing = not writing
                poll.modify(here, select.POLLIN | (select.POLLOUT if writing else 0))
            if here not in ready:
                continue
            try:
                packet = incoming.next()
            except BlockingIOError:
                continue
            except OSError:
                packet = b""
            if not packet:
                break
            heard = self._take(*split(packet)) or heard
        ours.close()
        status = _reap(helper)
        self._ended(heard=heard, status=status, lived=time.monotonic() - began)

    def _clear_bell(self) -> None:
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            return

    def _send_late(self, ours: socket.socket) -> None:
        """The oldest stays in the queue until it is sent, so that nothing that is newer goes first."""
        try:
            while self._late:
                ours.send(self._late[0])
                self._late.popleft()
        except BlockingIOError:
            return
        except OSError as error:
            _log.debug("the helper is gone: %s", error)
            self._late.clear()

    def _take(self, message: bytes, *kept: bytes) -> bool:
        """One message; whether it shows a helper that works."""
        match unpack(message):
            case ["news", int(number), int(stamp), last, news, put, gone]:
                session = self._sessions.get(number)
                if session is not None:
                    session.keep(stamp, last, kept[0], dict(zip(put, kept[1:], strict=True)), gone)
                    if news:
                        session.take(news)
                return True
            case ["log", int(level), str(text)]:
                _log.log(level, "helper: %s", text)
                return False
            case ["crash", str(why)]:
                self._why = why
                return False
            case other:
                raise AssertionError(f"no message of a helper: {other}")

    def _read_notes(self, session: _Session) -> None:
        """What a helper that is dead has not said of it. The newest counts: it says all that those before it did."""
        for stamp, note in sorted(self._notes.read(session.place)) if session.place is not None else ():
            number, last, head, put, gone = unpack(note)
            if number == session.number and stamp > session.stamp:
                packed = pack(head) if head else b""
                session.keep(stamp, last, packed, {entry[0]: pack([name, entry]) for name, entry in put}, gone)

    def _ended(self, *, heard: bool, status: int | None, lived: float) -> None:
        """The helper has closed its socket: start another if anybody needs one."""
        if self._closed:
            return
        with self._lock:
            self._socket = None
            self._silent = 0 if heard else self._silent + 1
            sessions = list(self._sessions.values())
            for session in sessions:
                self._read_notes(session)
            if not sessions:
                return
            _log.warning("the helper has ended (status %s, after %.1f s); another goes on", status, lived)
            error = HelperFailed(f"The helper has ended {ATTEMPTS} times without a word: {self._why or status}.")
            if self._silent < ATTEMPTS:
                try:
                    self._start()
                except HelperFailed as failure:
                    error = failure
                else:
                    for session in sessions:
                        self._open(session)
                    return
            self._sessions.clear()
        for session in sessions:
            self._free(session)
            session.take([Ended(error)])


def _reap(helper: subprocess.Popen[bytes]) -> int | None:
    """Its exit status; None if it has none yet, or has been waited for by somebody else."""
    try:
        return helper.wait(REAP)
    except subprocess.TimeoutExpired:
        helper.kill()  # it has let go of its parent, and would keep a session that another goes on with
        return helper.wait()


class ByHelper:
    """See `tsclient.link.Link`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hub = _hubs.get()
        self._number = 0
        self.deadlines = self._hub.deadlines

    def start(self, take: Callable[[Sequence[News]], None], standing: Callable[[], Sequence[Order]]) -> None:
        self._number = self._hub.enter(self._settings, take, standing)

    def post(self, order: Order) -> None:
        self._hub.post(self._number, order)

    def leave(self) -> None:
        self._hub.leave(self._number)


class _Hubs:
    """The process's own hub, made at its first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hub: Hub | None = None

    def get(self) -> Hub:
        with self._lock:
            if self._hub is None:
                self._hub = Hub()
            return self._hub

    def forget(self) -> None:
        """In a forked child, where the lock may be held by a thread that is not there."""
        self._lock = threading.Lock()
        hub, self._hub = self._hub, None
        if hub is not None:
            hub.forget()

    def close(self) -> None:
        if self._hub is not None:
            self._hub.close()


_hubs = _Hubs()
forks.in_child(_hubs.forget)


def close() -> None:
    """At the end of the program."""
    _hubs.close()
