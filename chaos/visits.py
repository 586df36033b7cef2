# SPDX-License-Identifier: Apache-2.0
"""Sessions by the thousand: each with a connection of its own and the client's own protocol, but no process.

A visit ends in one of several ways; those that leave without a word end with their TTL.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc
import grpc.aio

from timeslice_proto.v1 import coordinator_pb2 as pb
from timeslice_proto.v1 import coordinator_pb2_grpc
from tsclient.identity import this_process

_TTL, _TTL_OF_LEAVERS = 10.0, 2.0
_WITHIN = 60.0
_ELSEWHERE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED})
"""Answers after which a client goes on at another replica."""


class Way(enum.Enum):
    """How a session is used and how it ends."""

    CLOSED = "opened and closed"
    YIELDED = "had a turn, gave it back, closed"
    CANCELLED = "waited, took it back, closed"
    LEFT = "left without a word"
    LEFT_WAITING = "left while it waited"
    LEFT_HOLDING = "left with its turn"

    @property
    def leaves(self) -> bool:
        return self in (Way.LEFT, Way.LEFT_WAITING, Way.LEFT_HOLDING)


class VisitFailed(Exception):
    """The coordinator answered something else than what was to come."""


class SentAway(Exception):
    """The replica could not go on in time, as a slow store has it: a client would go on at another one."""


class _Stream:
    """A session's stream, read until what is waited for has come."""

    def __init__(self, call: grpc.aio.StreamStreamCall[pb.SessionRequest, pb.SessionEvent]) -> None:
        self._call = call

    async def send(self, **request: Any) -> None:
        """Raises SentAway if the stream has ended."""
        try:
            await self._call.write(pb.SessionRequest(**request))
        except asyncio.InvalidStateError as error:
            raise SentAway(f"the stream ended: {await self._call.code()}, {await self._call.details()}") from error

    async def wait(self, kind: str) -> Any:
        """Raises VisitFailed if the stream ends, or a request is refused, before it."""
        while isinstance(event := await self._call.read(), pb.SessionEvent):
            came = event.WhichOneof("event")
            if came == kind:
                return getattr(event, kind)
            if came == "lost" and event.lost.sequence == 0:
                raise SentAway("the session has ended: its beats were late")
            if came in ("refused", "lost", "go_away"):
                raise VisitFailed(f"{came} before {kind}: {getattr(event, came)}")
        raise VisitFailed(f"the stream ended before {kind}: {await self._call.code()}")


async def visit(endpoint: str, group: str, job: str, way: Way) -> None:
    """One session. Raises VisitFailed, SentAway, grpc.RpcError, or TimeoutError after 60 s."""
    try:
        await _visit(endpoint, group, job, way)
    except grpc.aio.AioRpcError as error:
        if error.code() in _ELSEWHERE:
            raise SentAway(str(error.details())) from error
        raise


async def _visit(endpoint: str, group: str, job: str, way: Way) -> None:
    ttl = _TTL_OF_LEAVERS if way.leaves else _TTL
    async with asyncio.timeout(_WITHIN), _stream(endpoint) as stream:
        await stream.send(open=pb.OpenRequest(process=this_process(), ttl_ms=int(ttl * 1000)))
        await stream.wait("opened")
        await stream.send(beat=pb.BeatRequest(number=1))
        await stream.wait("beat")
        if way not in (Way.CLOSED, Way.LEFT):
            await stream.send(acquire=pb.AcquireRequest(sequence=1, job=job, groups=[group]))
        match way:
            case Way.YIELDED:
                token = (await _granted(stream, ttl)).grants[0].token
                await stream.send(**{"yield": pb.YieldRequest(sequence=1, job=job, group=group, token=token)})
                await stream.wait("yielded")
            case Way.CANCELLED:
                await stream.send(cancel=pb.CancelRequest(sequence=1))
                await stream.wait("cancelled")
            case Way.LEFT_HOLDING:
                await _granted(stream, ttl)
            case _:
                pass
        if not way.leaves:
            await stream.send(close=pb.CloseRequest())
            await stream.wait("closed")


async def _granted(stream: _Stream, ttl: float) -> pb.Granted:
    """Beats until it is granted: a turn may be long in coming."""
    waiting = asyncio.ensure_future(stream.wait("granted"))
    try:
        for number in itertools.count(2):
            done, _ = await asyncio.wait({waiting}, timeout=ttl / 3)
            if done:
                break
            await stream.send(beat=pb.BeatRequest(number=number))
        return cast("pb.Granted", await waiting)
    finally:
        waiting.cancel()


@asynccontextmanager
async def _stream(endpoint: str) -> AsyncIterator[_Stream]:
    async with grpc.aio.insecure_channel(endpoint, options=(("grpc.use_local_subchannel_pool", 1),)) as channel:
        stub = cast("coordinator_pb2_grpc.CoordinatorAsyncStub", coordinator_pb2_grpc.CoordinatorStub(channel))
        call = stub.Session()
        try:
            yield _Stream(call)
        finally:
            call.cancel()
