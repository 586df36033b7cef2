# SPDX-License-Identifier: Apache-2.0
"""The session stream's contract over a dictionary, with hands on its failures. One group, "g".

It has the server's promises and none of its machinery: no etcd, no switch. Each replica is a real gRPC server
on a port of its own; the state is shared, as etcd's is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc.aio
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from timeslice_proto.v1 import coordinator_pb2 as pb
from timeslice_proto.v1 import coordinator_pb2_grpc as pb_grpc

_T = TypeVar("_T")


@dataclass
class Ticket:
    session: str
    sequence: int
    job: str
    token: int = 0  # granted, if not 0


@dataclass
class SessionState:
    name: str
    secret: str
    ttl_ms: int
    stream: asyncio.Queue[pb.SessionEvent | grpc.aio.AbortError | None] | None = None
    closed: bool = False


@dataclass
class Faults:
    confirm_beats: bool = True
    answer_yields: bool = True
    answer_cancels: bool = True
    tell_positions: bool = True
    refuse: dict[str, tuple[str, str]] = field(default_factory=dict)  # job to reason, message


class _Refusal(Exception):
    def __init__(self, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class FakeCoordinator(pb_grpc.CoordinatorServicer):
    """Replicas in a thread. What begins with an underscore runs in there."""

    def __init__(self, replicas: int = 1) -> None:
        self.faults = Faults()
        self.sessions: dict[str, SessionState] = {}
        self.queue: list[Ticket] = []
        self.log: list[str] = []  # requests, by name and sequence
        self.yielded_token = 0
        self.streams = 0  # that are open, of all replicas
        self.put: pb.PutGroupRequest | None = None
        self._token = 100
        self._paused = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._servers: list[grpc.aio.Server] = []
        self.endpoints = [self.do(self._serve("127.0.0.1:0")) for _ in range(replicas)]

    # ------------------------------------------------------------ hands on it

    def do(self, work: Coroutine[Any, Any, _T]) -> _T:
        future: Future[_T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(timeout=30)

    def stop(self) -> None:
        for server in self._servers:
            self.do(server.stop(0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def stop_replica(self, number: int) -> None:
        self.do(self._servers[number].stop(0))

    def in_thread(self, act: Callable[[], None]) -> None:
        async def run() -> None:
            act()

        self.do(run())

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        def act() -> None:
            self._paused = False
            self._serve_queue()

        self.in_thread(act)

    def stranger(self) -> None:
        """A holder of another session, until `stranger_leaves`."""
        self._token += 1
        self.queue.insert(0, Ticket("stranger", 1, "other", self._token))

    def stranger_leaves(self) -> None:
        def act() -> None:
            self.queue = [t for t in self.queue if t.session != "stranger"]
            self._serve_queue()

        self.in_thread(act)

    def cut(self) -> None:
        """End each stream without a word of its session."""

        def act() -> None:
            for session in self.sessions.values():
                if session.stream is not None:
                    session.stream.put_nowait(None)

        self.in_thread(act)

    def expire(self) -> None:
        """End each session, as when its lease is over."""

        def act() -> None:
            for session in list(self.sessions.values()):
                self._forget(session)
                if session.stream is not None:
                    session.stream.put_nowait(
                        pb.SessionEvent(lost=pb.Lost(sequence=0, reason="SESSION_EXPIRED", message="expired"))
                    )
                    session.stream.put_nowait(None)

        self.in_thread(act)

    def evict(self) -> None:
        def act() -> None:
            ticket = self.queue.pop(0)
            lost = pb.Lost(sequence=ticket.sequence, group="g", token=ticket.token, reason="EVICTED", message="by hand")
            self._tell(ticket.session, pb.SessionEvent(lost=lost))
            self._serve_queue()

        self.in_thread(act)

    def go_away(self) -> None:
        def act() -> None:
            for session in self.sessions:
                self._tell(session, pb.SessionEvent(go_away=pb.GoAway(why="leaving")))

        self.in_thread(act)

    # ------------------------------------------------------------ the service

    async def _serve(self, address: str) -> str:
        server = grpc.aio.server(options=[("grpc.http2.min_ping_interval_without_data_ms", 500)])
        pb_grpc.add_CoordinatorServicer_to_server(self, server)
        port = server.add_insecure_port(address)
        await server.start()
        self._servers.append(server)
        return f"127.0.0.1:{port}"

    async def Session(  # noqa: N802 - the name of the call
        self, requests: AsyncIterator[pb.SessionRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.SessionEvent]:
        out: asyncio.Queue[Any] = asyncio.Queue()
        reading = asyncio.ensure_future(self._requests(requests, out))
        self.streams += 1
        try:
            while (event := await out.get()) is not None:
                if isinstance(event, _Refusal):
                    await _abort(context, event)
                yield event
        finally:
            reading.cancel()
            self.streams -= 1
            for session in self.sessions.values():
                if session.stream is out:
                    session.stream = None

    async def _requests(self, requests: AsyncIterator[pb.SessionRequest], out: asyncio.Queue[Any]) -> None:
        session: SessionState | None = None
        async for request in requests:
            kind = request.WhichOneof("request")
            body = getattr(request, str(kind))
            self.log.append(f"{kind} {body.sequence}" if hasattr(body, "sequence") else str(kind))
            if kind == "close" and body.abandoned:
                self.log[-1] = "close abandoned"
            try:
                if kind in ("open", "resume"):
                    session = self._greet(request, out)
                elif session is not None:
                    self._handle(session, str(kind), body)
            except _Refusal as refusal:
                out.put_nowait(refusal)
                return

    def _greet(self, request: pb.SessionRequest, out: asyncio.Queue[Any]) -> SessionState:
        if request.WhichOneof("request") == "open":
            name = f"s{len(self.sessions) + len(self.log)}"
            session = SessionState(name, f"secret of {name}", request.open.ttl_ms)
            self.sessions[name] = session
            opened = pb.Opened(session=name, secret=session.secret, ttl_ms=session.ttl_ms)
        else:
            resume = request.resume
            found = self.sessions.get(resume.session)
            if found is None:
                raise _Refusal(grpc.StatusCode.NOT_FOUND, "SESSION_EXPIRED")
            session = found
            if session.stream is not None:
                session.stream.put_nowait(_Refusal(grpc.StatusCode.ABORTED, "SESSION_TAKEN"))  # type: ignore[arg-type]
            opened = pb.Opened(session=session.name, ttl_ms=session.ttl_ms, resumed=True)
        session.stream = out
        out.put_nowait(pb.SessionEvent(opened=opened))
        if request.WhichOneof("request") == "resume":
            wanted = {w.sequence for w in request.resume.wanted} | {h.sequence for h in request.resume.held}
            self._prune(session, request.resume.last_sequence, wanted)
            for acquire in request.resume.wanted:
                self.log.append(f"still wants {acquire.sequence}")
                self._acquire(session, acquire)
        return session

    def _handle(self, session: SessionState, kind: str, body: Any) -> None:
        match kind:
            case "beat":
                self._prune(session, body.last_sequence, set(body.wanted))
                if self.faults.confirm_beats:
                    confirmed = pb.BeatConfirmed(number=body.number, ttl_ms=session.ttl_ms)
                    self._tell(session.name, pb.SessionEvent(beat=confirmed))
            case "acquire":
                self._acquire(session, body)
            case "yield":
                if self.faults.answer_yields:
                    self._yield(session, body)
            case "cancel":
                if self.faults.answer_cancels:
                    self._remove(session, body.sequence)
                    self._tell(session.name, pb.SessionEvent(cancelled=pb.Cancelled(sequence=body.sequence)))
            case "close":
                self._tell(session.name, pb.SessionEvent(closed=pb.Closed()))
                session.closed = True
                self._forget(session)

    def _acquire(self, session: SessionState, acquire: pb.AcquireRequest) -> None:
        if acquire.job in self.faults.refuse:
            reason, message = self.faults.refuse[acquire.job]
            refused = pb.Refused(sequence=acquire.sequence, reason=reason, message=message)
            self._tell(session.name, pb.SessionEvent(refused=refused))
            return
        mine = next((t for t in self.queue if (t.session, t.sequence) == (session.name, acquire.sequence)), None)
        if mine is None:
            if any(t.job == acquire.job for t in self.queue):
                refused = pb.Refused(sequence=acquire.sequence, reason="ALREADY_QUEUED", message="twice")
                self._tell(session.name, pb.SessionEvent(refused=refused))
                return
            mine = Ticket(session.name, acquire.sequence, acquire.job)
            self.queue.append(mine)
        if mine.token:
            self._grant(mine)
        else:
            if self.faults.tell_positions:
                queued = pb.Queued(sequence=mine.sequence, group="g", position=self.queue.index(mine))
                self._tell(session.name, pb.SessionEvent(queued=queued))
            self._serve_queue()

    def _yield(self, session: SessionState, body: pb.YieldRequest) -> None:
        again = body.token == self.yielded_token
        held = any(t.token == body.token for t in self.queue)
        if not held and not again:
            refused = pb.Refused(sequence=body.sequence, reason="STALE_TOKEN", message="over")
            self._tell(session.name, pb.SessionEvent(refused=refused))
            return
        self.yielded_token = body.token
        self._remove(session, body.sequence)
        yielded = pb.Yielded(sequence=body.sequence, group="g", waiters=len(self.queue), again=again)
        self._tell(session.name, pb.SessionEvent(yielded=yielded))

    def _prune(self, session: SessionState, last: int, wanted: set[int]) -> None:
        for ticket in list(self.queue):
            if ticket.session == session.name and ticket.sequence <= last and ticket.sequence not in wanted:
                self._remove(session, ticket.sequence)

    def _remove(self, session: SessionState, sequence: int) -> None:
        self.queue = [t for t in self.queue if (t.session, t.sequence) != (session.name, sequence)]
        self._serve_queue()

    def _forget(self, session: SessionState) -> None:
        del self.sessions[session.name]
        self.queue = [t for t in self.queue if t.session != session.name]
        stream = session.stream
        self._serve_queue()
        if session.closed and stream is not None:
            stream.put_nowait(pb.SessionEvent(closed=pb.Closed()))
            stream.put_nowait(None)

    def _serve_queue(self) -> None:
        if self.queue and not self.queue[0].token and not self._paused:
            self._token += 1
            self.queue[0].token = self._token
            self._grant(self.queue[0])

    def _grant(self, ticket: Ticket) -> None:
        grant = pb.GroupGrant(group="g", token=ticket.token, restored=True)
        self._tell(ticket.session, pb.SessionEvent(granted=pb.Granted(sequence=ticket.sequence, grants=[grant])))

    def _tell(self, session: str, event: pb.SessionEvent) -> None:
        found = self.sessions.get(session)
        if found is not None and found.stream is not None:
            found.stream.put_nowait(event)

    # ------------------------------------------------------------ plain calls, for the command line

    async def Pause(self, request: pb.PauseRequest, context: grpc.aio.ServicerContext[Any, Any]) -> pb.Group:  # noqa: N802
        if request.group != "g":
            await _abort(context, _Refusal(grpc.StatusCode.NOT_FOUND, "NO_SUCH_GROUP"))
        self.log.append("pause")
        return pb.Group(name="g")

    async def ListGroups(  # noqa: N802
        self, request: pb.ListGroupsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ListGroupsResponse:
        return pb.ListGroupsResponse(groups=[self._group()])

    async def GetGroup(self, request: pb.GetGroupRequest, context: grpc.aio.ServicerContext[Any, Any]) -> pb.Group:  # noqa: N802
        if request.name != "g":
            await _abort(context, _Refusal(grpc.StatusCode.NOT_FOUND, "NO_SUCH_GROUP"))
        return self._group()

    async def PutGroup(self, request: pb.PutGroupRequest, context: grpc.aio.ServicerContext[Any, Any]) -> pb.Group:  # noqa: N802
        self.put = request
        return pb.Group(name=request.name)

    async def Unquarantine(  # noqa: N802
        self, request: pb.UnquarantineRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.UnquarantineResponse:
        self.log.append(f"unquarantine {request.group} {request.job}{' by force' if request.force else ''}")
        return pb.UnquarantineResponse()

    async def WatchGroups(  # noqa: N802
        self, request: pb.WatchGroupsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.Group]:
        """What there is, and then that it is gone."""
        yield self._group()
        yield pb.Group(name="g", deleted=True)

    def _group(self) -> pb.Group:
        group = pb.Group(name="g", waiting=len(self.queue), note="serving")
        group.turn.token = self._token
        for ticket in self.queue:
            entry = group.queue.add(job=ticket.job)
            entry.ticket.session, entry.ticket.token = ticket.session, ticket.token
        return group


async def _abort(context: grpc.aio.ServicerContext[Any, Any], refusal: _Refusal) -> None:
    packed = any_pb2.Any()
    packed.Pack(error_details_pb2.ErrorInfo(reason=refusal.reason, domain="timeslice"))
    number = getattr(code_pb2, refusal.code.name)
    status = status_pb2.Status(code=number, message=refusal.reason, details=[packed])
    details = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(refusal.code, f"refused: {refusal.reason}", trailing_metadata=details)
