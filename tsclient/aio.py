# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio: the same functions, arguments and errors as `tsclient`, to be awaited.

    import tsclient.aio as ts

    async with ts.accelerators("trainers", timeout=600) as turn:
        async for batch in batches:
            turn.check()
            await step(batch)

Heartbeats are the helper's affair here too: an event loop that stands still for a while loses no turn. A cancelled
acquire leaves no ticket, a cancelled yield is carried out all the same.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tsclient import client, forks, settings
from tsclient.awaiting import AsyncInbox
from tsclient.errors import ClientClosed, LockLost, TimesliceError, Unavailable
from tsclient.options import OPENING, Options, asking, opening_within
from tsclient.settings import Tls
from tsclient.turn import AnyTurn, add_note

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tsclient.engine import Engine, Reply

__all__ = ["Accelerators", "Client", "Turn", "accelerators", "acquire", "close", "connect"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Turn(AnyTurn):
    """Made by `Client.acquire`; an asynchronous context manager, otherwise as `tsclient.Turn`."""

    async def yield_(self, timeout: float = 30.0) -> int | None:
        """As `tsclient.Turn.yield_`. Cancelled, it is given back all the same."""
        self.check()
        inbox: AsyncInbox[Reply] = AsyncInbox()
        try:
            waiters = await inbox.drive(self._engine.returning(inbox, self._key, timeout))
        finally:
            self._given_back()
        if isinstance(self.ending.error, LockLost):
            self.check()
        return waiters

    async def __aenter__(self) -> Turn:  # noqa: PYI034 - 3.10 has no Self
        self.check()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._leaves():
            return
        try:
            await self.yield_()
        except TimesliceError as trouble:
            if error is None:
                raise
            add_note(error, trouble)


class Client:
    """As `tsclient.Client`. Its methods may be awaited in any event loop. Made by `connect`."""

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

    async def acquire(self, *groups: str, **options: Unpack[Options]) -> Turn:
        """As `tsclient.Client.acquire`."""
        return await self.acquire_since(time.monotonic(), groups, options)

    async def acquire_since(self, began: float, groups: tuple[str, ...], options: Options) -> Turn:
        """As `tsclient.Client.acquire_since`."""
        forks.check(self._born)
        ask = asking(self._settings, groups, Turn, began, **options)
        inbox: AsyncInbox[Reply] = AsyncInbox()
        try:
            return await inbox.drive(self._engine.acquiring(inbox, ask.request, ask.timeout, ask.on_progress))
        finally:
            ask.done()

    def accelerators(self, *groups: str, **options: Unpack[Options]) -> Accelerators:
        """As `tsclient.Client.accelerators`, for `async with` and for coroutine functions."""
        return Accelerators(lambda: self.acquire(*groups, **options))

    async def close(self, timeout: float = 5.0) -> bool:
        """As `tsclient.Client.close`."""
        forks.check(self._born)
        inbox: AsyncInbox[Reply] = AsyncInbox()
        return await inbox.drive(self._engine.closing(inbox, timeout))

    async def __aenter__(self) -> Client:  # noqa: PYI034 - 3.10 has no Self
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._born == forks.generation():
            await self.close()


class Accelerators:
    """What `accelerators(...)` returns. May be entered again and again, by several tasks at a time."""

    def __init__(self, acquire: Callable[[], Coroutine[Any, Any, Turn]]) -> None:
        self._acquire = acquire
        self._entered: dict[asyncio.Task[Any] | None, list[Turn]] = {}

    async def __aenter__(self) -> Turn:
        turn = await self._acquire()
        self._entered.setdefault(asyncio.current_task(), []).append(turn)
        return turn

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        turn = self._entered[task].pop()
        if not self._entered[task]:
            del self._entered[task]
        await turn.__aexit__(kind, error, trace)

    def __call__(self, function: Callable[_P, Awaitable[_R]]) -> Callable[_P, Coroutine[Any, Any, _R]]:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{getattr(function, '__qualname__', function)} is no coroutine function: see tsclient")

        @functools.wraps(function)
        async def in_turn(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            async with self:
                return await function(*args, **kwargs)

        return in_turn


async def connect(
    endpoints: str | Iterable[str] | None = None,
    job: str | None = None,
    ttl: float | None = None,
    *,
    backend: str | None = None,
    tls: Tls | None = None,
    in_process: bool | None = None,
    connect_timeout: float = OPENING,
) -> Client:
    """As `tsclient.connect`."""
    where = settings.load(endpoints, job, ttl, backend, tls, in_process)
    engine = await asyncio.to_thread(client.engine_for, where)
    inbox: AsyncInbox[Reply] = AsyncInbox()
    try:
        await inbox.drive(engine.opening(inbox, connect_timeout))
    except BaseException:
        last: AsyncInbox[Reply] = AsyncInbox()
        await asyncio.shield(last.drive(engine.closing(last, timeout=1.0)))
        raise
    return Client(engine, where)


class _Default:
    """The client of the module-level functions."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._connecting: asyncio.Task[Client] | None = None

    async def acquire(self, groups: tuple[str, ...], options: Options) -> Turn:
        """As `Client.acquire`; what opening the session takes is of its time."""
        began = time.monotonic()
        return await (await self._opened(opening_within(options.get("timeout")))).acquire_since(began, groups, options)

    async def _opened(self, within: float) -> Client:
        """Tasks that come while it is being opened wait for the same one, each for as long as it has."""
        if self._client is not None and not self._client.closed:
            return self._client
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.ensure_future(connect())
            self._connecting.add_done_callback(self._keep)
        connecting = self._connecting
        done, _ = await asyncio.wait({connecting}, timeout=within)
        if not done:
            raise Unavailable(f"No coordinator has opened a session in {within:g} s.")
        if connecting.cancelled():
            raise ClientClosed("The client was closed while its session was being opened.")
        return connecting.result()

    def _keep(self, connecting: asyncio.Task[Client]) -> None:
        """It is there, also where nobody waits for it any more: the next acquire's."""
        if not connecting.cancelled() and connecting.exception() is None and connecting is self._connecting:
            self._client = connecting.result()

    def forget(self) -> None:
        """In a forked child: the client is the parent's."""
        self._client = self._connecting = None

    async def close(self) -> bool:
        connecting, self._connecting = self._connecting, None
        if connecting is not None and not connecting.done():
            connecting.cancel()
            await asyncio.wait({connecting})
        mine, self._client = self._client, None
        return True if mine is None else await mine.close()


_default = _Default()
forks.in_child(_default.forget)


async def acquire(*groups: str, **options: Unpack[Options]) -> Turn:
    """As `Client.acquire`, by the process's own client, which is opened from the environment at its first use."""
    return await _default.acquire(groups, options)


def accelerators(*groups: str, **options: Unpack[Options]) -> Accelerators:
    """As `Client.accelerators`, by the process's own client, which is opened when the block is entered."""
    return Accelerators(lambda: acquire(*groups, **options))


async def close() -> bool:
    """Close the process's own client, if it is open; as `Client.close`."""
    return await _default.close()
