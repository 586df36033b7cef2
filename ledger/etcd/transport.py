# SPDX-License-Identifier: Apache-2.0
"""The one way to etcd: each unary call and each stream of the client passes here.

A call has a deadline, and each of its attempts a shorter one, since a member in an election drops a write
without a word and a frozen one answers nothing. What may have been applied is sent again only if that does no
harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from functools import lru_cache
from random import Random
from typing import Generic, cast

import grpc
import grpc.aio

from ledger.etcd import rpc_pb2 as pb
from ledger.etcd.auth import Tokens
from ledger.etcd.channel import Backoff, Endpoint, Endpoints
from ledger.etcd.clock import Clock
from ledger.etcd.errors import (
    AuthNotEnabled,
    Closed,
    DeadlineExceeded,
    EtcdError,
    StaleToken,
    Unavailable,
    from_status,
)
from ledger.etcd.methods import AUTHENTICATE, Method, Q, R
from ledger.etcd.security import Security

log = logging.getLogger(__name__)

ATTEMPT = 1.0
"""Seconds allowed for one attempt, and for a stream's first answer."""

_LOGINS_PER_CALL = 2

Around = Callable[[str], AbstractContextManager[object]]
"""Entered around each unary call with the method's name: where tracing and metrics go."""


class Stream(Generic[Q, R]):
    """One open stream. Used by one reader and one writer; it ends with an `EtcdError`, never silently."""

    def __init__(self, call: grpc.aio.StreamStreamCall[Q, R], endpoint: str, transport: Transport) -> None:
        self.endpoint = endpoint
        self._call = call
        self._transport = transport

    async def write(self, request: Q) -> None:
        """Send. Cancelling this ends the whole stream."""
        try:
            await self._call.write(request)
        except asyncio.CancelledError:
            raise self._transport.why_cancelled() from None
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            raise await self._ended() from None

    async def read(self) -> R:
        """The next answer. Cancelling this ends the whole stream."""
        try:
            answer = await self._call.read()
        except asyncio.CancelledError:
            raise self._transport.why_cancelled() from None
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            raise await self._ended() from None
        if answer is grpc.aio.EOF:
            raise await self._ended()
        return cast(R, answer)

    async def _ended(self) -> EtcdError:
        status = await self._call.code()
        if status is grpc.StatusCode.OK:
            return Unavailable(f"{self.endpoint} ended the stream", ambiguous=True)
        return from_status(status, await self._call.details() or "", self.endpoint)

    async def close(self) -> None:
        """Cancel, and wait until it is over: an abandoned call may stay open on the server."""
        self._call.cancel()
        await self._call.code()


class Transport:
    """Calls and streams to whichever member serves.

    Attributes:
        requests: how many requests of each method were sent, every attempt, watch creation and keepalive
            counted.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        security: Security,
        *,
        timeout: float,
        clock: Clock,
        around: Around | None,
        random: Random,
    ) -> None:
        self.requests: Counter[str] = Counter()
        self.clock = clock
        self.timeout = timeout
        self.random = random
        self._endpoints = Endpoints(endpoints, security, random)
        self._security = security
        self._tokens = Tokens(None if security.user is None else self._login)
        self._around = around
        self._closed = False

    def backoff(self) -> Backoff:
        return Backoff(len(self._endpoints), self.random)

    async def call(
        self,
        method: Method[Q, R],
        request: Q,
        *,
        idempotent: bool = False,
        timeout: float | None = None,
        leader: bool = True,
        login: bool = True,
        endpoint: str | None = None,
    ) -> R:
        """Send one request and return its answer.

        Args:
            idempotent: sending it twice does no harm; a method that only reads always is.
            timeout: seconds for everything, other members and logins included; None: the client's.
            leader: a member that sees no leader refuses at once, so that another one is asked.
            login: send the token.
            endpoint: ask this one alone.

        Raises:
            Unavailable: no answer; its `ambiguous` says whether the request may have been applied.
            EtcdError: etcd's refusal, see `ledger.etcd.errors`.
        """
        deadline = self.clock() + (self.timeout if timeout is None else timeout)
        answer = self._attempts(method, request, method.reads or idempotent, deadline, leader, login, endpoint)
        if self._around is None:
            return await answer
        with self._around(method.name):
            return await answer

    async def _attempts(
        self,
        method: Method[Q, R],
        request: Q,
        again: bool,
        deadline: float,
        leader: bool,
        login: bool,
        only: str | None,
    ) -> R:
        backoff: Backoff | None = None
        resent = False
        logins = 0
        while True:
            endpoint = self._endpoints.find(only) if only else self._endpoints.current
            token = ""
            try:
                if login:
                    known = self._tokens.known
                    token = await self._login_within(deadline) if known is None else known
                return await self._attempt(endpoint, method, request, deadline, token, leader)
            except StaleToken as error:
                # Refused before anything was applied.
                logins += 1
                if logins > _LOGINS_PER_CALL:
                    error.resent = resent
                    raise
                self._tokens.drop(token, error)
            except Unavailable as error:
                error.ambiguous = error.ambiguous and not method.reads
                resent = resent or error.ambiguous
                self._endpoints.leave(endpoint)
                backoff = backoff or self.backoff()
                pause = backoff.next_pause()
                if (error.ambiguous and not again) or self.clock() + pause >= deadline:
                    error.ambiguous = error.resent = resent
                    raise
                log.debug("%s failed and is sent again in %.3f s: %s", method.name, pause, error.cause)
                await asyncio.sleep(pause)
            except EtcdError as error:
                error.resent = resent
                raise

    async def _login_within(self, deadline: float) -> str:
        try:
            async with asyncio.timeout(max(0.0, deadline - self.clock())):
                return await self._tokens.current()
        except TimeoutError:
            raise DeadlineExceeded("no login in time", ambiguous=False) from None

    async def _attempt(
        self, endpoint: Endpoint, method: Method[Q, R], request: Q, deadline: float, token: str, leader: bool
    ) -> R:
        if self._closed:
            raise Closed(f"{method.name} on a closed client")
        timeout = min(deadline - self.clock(), ATTEMPT)
        if timeout <= 0:
            raise DeadlineExceeded(f"no time was left to send {method.name}", ambiguous=False)
        self.requests[method.name] += 1
        try:
            return await endpoint.unary(method)(request, timeout=timeout, metadata=_metadata(token, leader))
        except grpc.aio.AioRpcError as error:
            raise from_status(error.code(), error.details() or "", endpoint.address) from None
        except grpc.aio.UsageError as error:
            raise Closed(str(error)) from None
        except asyncio.CancelledError:
            raise self.why_cancelled() from None

    @asynccontextmanager
    async def stream(self, method: Method[Q, R]) -> AsyncIterator[Stream[Q, R]]:
        """Open a stream to the member in use; after a failure inside, the next one will be in use.

        Raises (from the body): any `EtcdError`; after `Unavailable` and `StaleToken` it is worth opening
        another.
        """
        if self._closed:
            raise Closed(f"{method.name} on a closed client")
        token = await self._tokens.current()
        endpoint = self._endpoints.current
        try:
            call = endpoint.stream(method)(metadata=_metadata(token, leader=True))
        except grpc.aio.UsageError as error:
            raise Closed(str(error)) from None
        stream = Stream(call, endpoint.address, self)
        try:
            yield stream
        except StaleToken as error:
            self._tokens.drop(token, error)
            raise
        except Unavailable:
            self._endpoints.leave(endpoint)
            raise
        finally:
            await stream.close()

    def why_cancelled(self) -> BaseException:
        """What a CancelledError out of gRPC means: the task's own cancellation, or that the channel was
        closed."""
        task = asyncio.current_task()
        if self._closed and not (task and task.cancelling()):
            return Closed("the client was closed during a call")
        return asyncio.CancelledError()

    async def _login(self) -> str:
        request = pb.AuthenticateRequest(name=self._security.user or "", password=self._security.password or "")
        try:
            return (await self.call(AUTHENTICATE, request, login=False)).token
        except AuthNotEnabled:
            # As etcd's own client does: a user may be configured before authentication is turned on.
            return ""

    async def close(self) -> None:
        """Close the channels; calls in flight raise `Closed`."""
        self._closed = True
        await self._endpoints.close()


@lru_cache(8)
def _metadata(token: str, leader: bool) -> grpc.aio.Metadata:
    """Made once for each token: of anything else gRPC makes one itself, call by call."""
    metadata = grpc.aio.Metadata()
    if leader:
        metadata.add("hasleader", "true")
    if token:
        metadata.add("token", token)
    return metadata
