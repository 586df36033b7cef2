# SPDX-License-Identifier: Apache-2.0
"""The blocking client. Importing this is cheap, and gRPC never comes into this process: the helper has it."""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from tsclient import forks, settings
from tsclient.errors import Unavailable
from tsclient.options import OPENING, Options, asking, opening_within
from tsclient.settings import Tls
from tsclient.turn import Turn
from tsclient.waiting import BlockingInbox

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tsclient.engine import Engine, Reply
    from tsclient.link import Link

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Client:
    """One session with the coordinators: it lives until `close()`, or until its process ends.

    Its methods may be called from any thread. Threads that acquire for the same job and group wait for each
    other inside the client; to the coordinators they are one job with one ticket.

    Made by `connect`.
    """

    def __init__(self, engine: Engine, where: settings.Settings) -> None:
        self._engine = engine
        self._settings = where
        self._born = forks.generation()

    @property
    def job(self) -> str:
        """For which this client acquires where nothing else is said; may be empty."""
        return self._settings.job

    @property
    def closed(self) -> bool:
        return self._engine.ended

    def acquire(self, *groups: str, **options: Unpack[Options]) -> Turn:
        """Wait for a turn on a group of accelerators, or on several groups at once.

        Broken connections, dead coordinators and an expired session are not seen by who waits: the acquire
        goes on by itself, after an expiry at the tail of the queue. Of several groups either all are granted or
        none is kept; they take their places in all queues at the same moment, so that jobs which name them in
        different orders never wait for each other in a circle.

        Args:
            groups: whose accelerators.
            options: see `tsclient.options.Options`.

        Raises:
            AcquireTimeout: no turn in time; the place in the queue is given up.
            JobQuarantined, AlreadyQueued, NoSuchGroup, GroupDeleting, ...: refused.
            ClientClosed, ForkedClient: there is no session to ask in.
        """
        return self.acquire_since(time.monotonic(), groups, options)

    def acquire_since(self, began: float, groups: tuple[str, ...], options: Options) -> Turn:
        """`acquire`, for who has waited since ``began`` (monotonic, s)."""
        forks.check(self._born)
        ask = asking(self._settings, groups, Turn, began, **options)
        inbox: BlockingInbox[Reply] = BlockingInbox()
        try:
            return inbox.drive(self._engine.acquiring(inbox, ask.request, ask.timeout, ask.on_progress))
        finally:
            ask.done()

    def accelerators(self, *groups: str, **options: Unpack[Options]) -> Accelerators:
        """A turn for the length of a `with` block, or of each call of a function that it decorates.

        See `acquire` for the arguments and errors. Leaving the block gives the turn back; if it was lost
        meanwhile, LockLost is raised there, or noted on the exception that is on its way already.
        """
        return Accelerators(lambda: self.acquire(*groups, **options))

    def close(self, timeout: float = 5.0) -> bool:
        """Give back every turn and every place in a queue, and end the session.

        Args:
            timeout: seconds to wait for it at most.

        Returns:
            Whether it was confirmed; if not, the session ends when its time to live has passed.
        """
        forks.check(self._born)
        inbox: BlockingInbox[Reply] = BlockingInbox()
        return inbox.drive(self._engine.closing(inbox, timeout))

    def __enter__(self) -> Client:  # noqa: PYI034 - 3.10 has no Self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._born == forks.generation():
            self.close()


class Accelerators:
    """What `accelerators(...)` returns. May be entered again and again, by several threads at a time."""

    def __init__(self, acquire: Callable[[], Turn]) -> None:
        self._acquire = acquire
        self._entered = threading.local()

    def __enter__(self) -> Turn:
        turn = self._acquire()
        self._turns().append(turn)
        return turn

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._turns().pop().__exit__(kind, error, trace)

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(
                f"{function.__qualname__} returns before it has run: use a `with` block inside it, or tsclient.aio"
            )

        @functools.wraps(function)
        def in_turn(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with self:
                return function(*args, **kwargs)

        return in_turn

    def _turns(self) -> list[Turn]:
        turns: list[Turn] = self._entered.__dict__.setdefault("turns", [])
        return turns


def connect(
    endpoints: str | Iterable[str] | None = None,
    job: str | None = None,
    ttl: float | None = None,
    *,
    backend: str | None = None,
    tls: Tls | None = None,
    in_process: bool | None = None,
    connect_timeout: float = OPENING,
) -> Client:
    """Open a session with the coordinators.

    Args:
        endpoints: "host:port", several as a list or comma separated; None: TIMESLICE_ENDPOINTS.
        job: that this process belongs to; None: TIMESLICE_JOB_ID.
        ttl: seconds that the session outlives its last heartbeat; None: TIMESLICE_TTL, or 10.
        backend: by which the job is to be saved; None: TIMESLICE_BACKEND, or the node's default.
        tls: None: TIMESLICE_TLS_CA, _CERT and _KEY; without them the connection is in plain text.
        in_process: keep the session in this process, by gRPC and a thread, rather than in a helper; None:
            TIMESLICE_IN_PROCESS, or not.
        connect_timeout: seconds to wait for the session.

    Raises:
        Unavailable: no coordinator has opened a session in time.
        BadRequest: an argument or variable is wrong.
        HelperFailed: the helper process cannot be started.
        ForkedClient: in-process alone: a parent of this process has used gRPC, which does not survive a fork.
    """
    where = settings.load(endpoints, job, ttl, backend, tls, in_process)
    engine = engine_for(where)
    inbox: BlockingInbox[Reply] = BlockingInbox()
    try:
        inbox.drive(engine.opening(inbox, connect_timeout))
    except BaseException:
        last: BlockingInbox[Reply] = BlockingInbox()
        last.drive(engine.closing(last, timeout=1.0))
        raise
    return Client(engine, where)


def engine_for(where: settings.Settings) -> Engine:
    """An engine with its link; it is closed at the end of the program if nobody does it before."""
    from tsclient import closing
    from tsclient.engine import Engine

    engine = Engine(_link(where))
    closing.at_exit(engine)
    return engine


def _link(where: settings.Settings) -> Link:
    if where.disabled:
        from tsclient.disabled import Disabled

        return Disabled()
    if where.in_process:
        from tsclient.in_process import InProcess

        return InProcess(where)
    from tsclient.helper.hub import ByHelper

    return ByHelper(where)


class Default:
    """The client of the module-level functions: opened from the environment at its first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: Client | None = None

    def acquire(self, groups: tuple[str, ...], options: Options) -> Turn:
        """As `Client.acquire`; what opening the session takes is of its time."""
        began = time.monotonic()
        return self._opened(began, opening_within(options.get("timeout"))).acquire_since(began, groups, options)

    def _opened(self, began: float, within: float) -> Client:
        """See `connect` for what it raises. After a close it is opened anew."""
        if not self._lock.acquire(timeout=within):
            raise Unavailable(f"Another thread is opening the session, and had none in {within:g} s.")
        try:
            if self._client is None or self._client.closed:
                self._client = connect(connect_timeout=within - (time.monotonic() - began))
            return self._client
        finally:
            self._lock.release()

    def forget(self) -> None:
        """In a forked child: the lock may be held by a thread that is not here, the client is the parent's."""
        self._lock = threading.Lock()
        self._client = None

    def close(self) -> bool:
        """Close it if it is open; see `Client.close`. One that is being opened is waited for, half a minute at most."""
        with self._lock:
            client, self._client = self._client, None
        return True if client is None else client.close()


default = Default()
forks.in_child(default.forget)
