# SPDX-License-Identifier: Apache-2.0
"""One session's stream: requests in, events out. Nothing of a session lives here that another replica would miss.

Each request is carried out by the task that has read it, in order for each acquire, while another waits for the next:
so it begins at once, and one that waits for etcd holds up nothing else. A request whose stream has ended is carried out
all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import grpc.aio
from msgspec.structs import replace

from coordinator.apply.engine import Applied
from coordinator.apply.errors import EngineError
from coordinator.decide import Decision, commands
from coordinator.decide.commands import Refusal
from coordinator.decide.view import GroupView
from coordinator.errors import INTERNAL, answer_to
from coordinator.serve import validate
from coordinator.serve.acquire import current_traceparent, take_place
from coordinator.serve.outbox import Outbox
from coordinator.serve.party import Party
from coordinator.serve.seat import Event, refused
from coordinator.serve.services import Services
from coordinator.serve.sessions import WITHIN, Live, beat_within
from ledger.errors import LedgerError
from ledger.etcd.errors import EtcdError, LeaseNotFound
from ledger.failpoint import hit
from ledger.keys import check_name
from timeslice_proto.v1 import coordinator_pb2

log = logging.getLogger(__name__)

GREETING_WITHIN = 10.0
"""Seconds until a stream must have said whose it is."""

FLUSH_WITHIN = 2.0
"""Seconds for the last events of a stream that ends."""

SEATS_MAX = 1_000
"""Acquires and held turns of one session."""

Context = grpc.aio.ServicerContext[Any, Event]


class SessionStream:
    """Serves one stream. `run` returns, or raises what the stream ends with."""

    def __init__(self, services: Services, context: Context) -> None:
        self._services = services
        self._engine = services.engine
        self._context = context
        self._live = Live("", None, 0, 0)
        self._traceparent = current_traceparent()  # all of the stream is one call
        self._parties: dict[int, Party] = {}
        self._gave_up: dict[int, asyncio.Event] = {}
        self._last: dict[int, asyncio.Task[None]] = {}  # the newest request of each acquire
        self._reader: asyncio.Task[None] | None = None  # which waits for the next request
        self._about_to_read: asyncio.Handle | None = None
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(context.write)
        self._put = self._outbox.put
        self._looking: asyncio.Handle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._unlisten: dict[str, Callable[[], None]] = {}
        self._ending: asyncio.Future[Exception | None] = self._loop.create_future()

    def end(self, error: Exception | None) -> None:
        """End the stream, in order where ``error`` is None."""
        if not self._ending.done():
            if isinstance(error, Refusal) and error.reason == "REPLICA_LEAVING":
                self._put(Event(go_away=coordinator_pb2.GoAway(why=error.message)))
            self._ending.set_result(error)

    async def run(self) -> None:
        """Serve until the client has hung up or closed its session, or the stream has to end.

        Raises:
            Refusal, LedgerError, EngineError, EtcdError: what the client is told as the stream's status.
        """
        self._services.registry.enter(self)
        workers: list[asyncio.Task[None]] = []
        unsubscribe: Callable[[], None] | None = None
        try:
            await self._greet()
            self._services.registry.enter(self, self._live.session)
            unsubscribe = self._engine.subscribe_session(self._live.session, self._look_soon)
            self._look_soon()
            writer = asyncio.create_task(self._outbox.run(), name=f"session {self._live.session}: write")
            writer.add_done_callback(self._writer_ended)
            workers.append(writer)
            self._read_next()
            error = await self._ending
            await self._flush(writer)
        finally:
            self._services.registry.leave(self, self._live.session)
            if unsubscribe is not None:
                unsubscribe()
            if self._reader is not None:
                workers.append(self._reader)
            self._leave(workers)
            await asyncio.gather(*workers, return_exceptions=True)
        if error is not None:
            raise error

    # ------------------------------------------------------------------------------------------------ the greeting

    async def _greet(self) -> None:
        try:
            async with asyncio.timeout(GREETING_WITHIN):
                first = await self._context.read()
        except TimeoutError as error:
            raise validate.bad_request("A stream opens or resumes a session first of all.") from error
        if isinstance(first, coordinator_pb2.SessionRequest):
            match first.WhichOneof("request"):
                case "open":
                    self._live, secret = await self._services.sessions.open(first.open)
                    self._opened(secret, resumed=False)
                    return
                case "resume":
                    await self._resume(first.resume)
                    return
        raise validate.bad_request("A stream opens or resumes a session first of all.")

    async def _resume(self, request: coordinator_pb2.ResumeSession) -> None:
        sessions = self._services.sessions
        self._live = await sessions.resume(request.session, request.secret, request.last_sequence)
        self._opened("", resumed=True)
        known = {one.sequence for one in request.wanted} | {one.sequence for one in request.held}
        prune = sessions.prune(self._live.session, request.last_sequence, known)
        self._services.registry.spawn(prune, f"what session {self._live.session} has forgotten is given back")
        for held in request.held:
            party = self._parties.get(held.sequence) or self._party(held.sequence, held.job, ())
            party.holds(held.group, held.token, self._live.mod)
            self._listen(held.group)
        for wanted in request.wanted:
            self._in_order(wanted.sequence, self._acquire(wanted))

    def _opened(self, secret: str, *, resumed: bool) -> None:
        opened = coordinator_pb2.Opened(
            session=self._live.session,
            secret=secret,
            ttl_ms=self._live.ttl_ms,
            resumed=resumed,
            replica=self._engine.replica_id,
        )
        self._put(Event(opened=opened))

    # ------------------------------------------------------------------------------------------------ requests

    def _read_next(self) -> None:
        self._about_to_read = None
        self._reader = asyncio.create_task(self._read(), name=f"session {self._live.session}: read")

    async def _read(self) -> None:
        """Take a request, leave the next one to another reader, and carry it out."""
        try:
            request = await self._context.read()
        except Exception as error:  # noqa: BLE001 - the stream ends with it
            self.end(error)
            return
        if not isinstance(request, coordinator_pb2.SessionRequest):
            self.end(None)  # the client has hung up: its session lives on
            return
        # Not before the request is on its way to etcd: gRPC's part in it takes as long as a tenth of that.
        self._reader, self._about_to_read = None, self._loop.call_soon(self._read_next)
        match request.WhichOneof("request"):
            case "beat":
                self._services.sessions.heard(self._live.session)
                await self._here(self._beat(request.beat), "beat")
            case "acquire":
                await self._here(self._acquire(request.acquire), "acquire", request.acquire.sequence)
            case "yield":
                yielded = getattr(request, "yield")
                await self._here(self._yield(yielded), "yield", yielded.sequence)
            case "cancel":
                self._give_up(request.cancel.sequence)
                await self._here(self._cancel(request.cancel.sequence), "cancel", request.cancel.sequence)
            case "close":
                await self._here(self._close(abandoned=request.close.abandoned), "close")
            case _:
                self.end(validate.bad_request("A stream opens or resumes its session once, at its beginning."))

    async def _beat(self, beat: coordinator_pb2.BeatRequest) -> None:
        session = self._live.session
        try:
            ttl_ms = await self._services.sessions.beat(session, within=beat_within(self._live.ttl_ms))
        except LeaseNotFound:
            self._expired()
            return
        self._put(Event(beat=coordinator_pb2.BeatConfirmed(number=beat.number, ttl_ms=ttl_ms)))
        if beat.prune:
            await self._services.sessions.prune(session, beat.last_sequence, set(beat.wanted))

    async def _acquire(self, request: coordinator_pb2.AcquireRequest) -> None:
        known = self._parties.get(request.sequence)
        if known is not None and not known.over:
            known.tell_again()
            self._look_soon()
            return
        try:
            validate.acquire(request)
            if sum(len(party.seats) for party in self._parties.values()) >= SEATS_MAX:
                raise validate.bad_request(f"A session has at most {SEATS_MAX} acquires and turns at a time.")
            party = self._party(request.sequence, request.job, request.groups)
            gave_up = self._gave_up[request.sequence] = asyncio.Event()
            live = self._live
            request.traceparent = request.traceparent or self._traceparent
            await take_place(self._engine, party, request, live.process, gave_up, self._put, served_since=live.mod)
        except (Refusal, LedgerError, EngineError) as error:
            self._drop(request.sequence)
            if isinstance(error, Refusal) and error.reason == "SESSION_TAKEN":
                raise  # this stream is over; the newer one answers
            self._refuse(request.sequence, error)
        else:
            if party.granted_at_once:
                for event in party.look(self._engine.picture, self._engine.clock()):
                    await self._outbox.tell(event)
                self._engine.view.rest_no_longer()
                if not party.over:
                    return  # nothing more is to be told until its ticket changes
            for group in party.groups:
                self._listen(group)
            self._look_soon()

    async def _yield(self, request: coordinator_pb2.YieldRequest) -> None:
        party = self._parties.get(request.sequence)
        seat = party.seats.get(request.group) if party is not None else None
        waiters = 0

        def ask(view: GroupView) -> Decision | commands.Nothing:
            nonlocal waiters
            waiters = len(view.tickets.waiting)
            return commands.give_back(view, request.job, self._live.session, request.token)

        if seat is not None:
            seat.leaving = True
        hit("replica.yield.asked")
        try:
            check_name("group", request.group)
            done = await self._engine.command(request.group, ask, within=WITHIN)
        except EngineError as error:
            if seat is not None:
                seat.leaving = False
                self._look_soon()
            self._refuse(request.sequence, error)
        except (Refusal, LedgerError) as error:
            self._drop(request.sequence, request.group)
            self._refuse(request.sequence, error)
        else:
            hit("replica.yield.written")
            yielded = coordinator_pb2.Yielded(
                sequence=request.sequence,
                group=request.group,
                waiters=waiters,
                again=not isinstance(done, Applied),
            )
            await self._outbox.tell(Event(yielded=yielded))
            self._engine.view.rest_no_longer()
            self._drop(request.sequence, request.group)

    async def _cancel(self, sequence: int) -> None:
        """What cannot be done now ends the stream: the client asks another replica."""
        hit("replica.cancel.asked")
        await self._take_back(sequence)
        hit("replica.cancel.written")
        self._drop(sequence)
        self._put(Event(cancelled=coordinator_pb2.Cancelled(sequence=sequence)))

    async def _fail(self, party: Party, failure: Event) -> None:
        """One of several groups has ended the acquire: the client is told when nothing is left of it in the others."""
        await self._take_back(party.sequence)
        self._drop(party.sequence)
        self._put(failure)

    async def _take_back(self, sequence: int) -> None:
        session, party = self._live.session, self._parties.get(sequence)
        places = {(group, party.job) for group in party.groups} if party is not None else set()
        if party is not None:
            party.leave()
        for group, ticket in self._engine.picture.tickets_of(session):
            if ticket.value.sequence == sequence:
                places.add((group, ticket.name))
        for group, job in sorted(places):
            await self._services.sessions.take_back(session, group, job, sequence)

    async def _close(self, *, abandoned: bool) -> None:
        for sequence in tuple(self._gave_up):
            self._give_up(sequence)
        for party in self._parties.values():
            party.leave()
        if self._last:
            await asyncio.wait(tuple(self._last.values()))
        self._live = replace(self._live, mod=_NEVER)
        await self._services.sessions.close(self._live.session, abandoned=abandoned)
        self._put(Event(closed=coordinator_pb2.Closed()))
        self.end(None)

    def _in_order(self, sequence: int, request: Coroutine[Any, Any, None]) -> None:
        """Carry out a request after the earlier ones of the same acquire."""
        before = self._last.get(sequence)
        ordered = request if before is None else _after(before, request)
        name = f"acquire {sequence} of session {self._live.session}"
        self._last[sequence] = self._services.registry.spawn(self._carry_out(ordered, sequence), name)

    async def _here(self, request: Coroutine[Any, Any, None], what: str, sequence: int = 0) -> None:
        """As `_in_order`, by the task that has read it."""
        task = asyncio.current_task()
        assert task is not None
        task.set_name(f"{what} {sequence or ''} of session {self._live.session}")
        before = self._last.get(sequence)
        if sequence:
            self._last[sequence] = task
        ordered = request if before is None else _after(before, request)
        await self._services.registry.carry_out(task, self._carry_out(ordered, sequence))

    async def _carry_out(self, request: Coroutine[Any, Any, None], sequence: int) -> None:
        """A client that waits for what fails has to be told: the stream ends with it."""
        try:
            await request
        except (Refusal, LedgerError, EngineError, EtcdError) as error:
            self.end(error)
        except Exception as error:
            self.end(error)
            raise
        finally:
            if sequence and self._last.get(sequence) is asyncio.current_task():
                del self._last[sequence]

    # ------------------------------------------------------------------------------------------------ events

    def _look_soon(self) -> None:
        """Something may have to be told. Where that is known for a request's sake, the request goes first."""
        if self._looking is None and not self._ending.done():  # a request may outlive its stream
            self._looking = self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = None
        try:
            self._tell()
        except Exception as error:  # noqa: BLE001 - the stream ends with it
            self.end(error)

    def _tell(self) -> None:
        """Tell what has changed for the session's acquires."""
        if self._session_over():
            return
        now = self._engine.clock()
        for sequence, party in tuple(self._parties.items()):
            had_failed = party.failure is not None
            for event in party.look(self._engine.picture, now):
                self._put(event)
            if party.failure is not None and not had_failed:
                self._in_order(sequence, self._fail(party, party.failure))
            elif party.over and party.seats and party.failure is None:
                self._drop(sequence)
        waits = [party.due_in(now) for party in self._parties.values()]
        self._look_again([wait for wait in waits if wait is not None])

    def _session_over(self) -> bool:
        """Whether the session's key is gone, or another replica has it.

        That the picture may be out of date does not matter: an id is never used again, so what is gone stays gone.
        After an outage the list that shows it comes before the watch by which the picture is live again.
        """
        picture = self._engine.picture
        if picture.revision < self._live.mod:
            return False
        kept = picture.session(self._live.session)
        if kept is None:
            if (unreadable := picture.session_error(self._live.session)) is not None:
                self.end(unreadable)  # it lives: a replica that can read it serves it
            else:
                self._expired()
            return True
        if kept.mod > self._live.mod and kept.value.replica != self._engine.replica_id:
            self.end(Refusal("SESSION_TAKEN", "Another replica serves the session now."))
            return True
        return False

    def _expired(self) -> None:
        message = "The session has ended: its lease is gone."
        lost = coordinator_pb2.Lost(sequence=0, reason="SESSION_EXPIRED", message=message)
        if not self._ending.done():
            self._put(Event(lost=lost))
        self.end(Refusal("SESSION_EXPIRED", message, {"session": self._live.session}))

    def _look_again(self, waits: list[float]) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if waits:
            self._later = self._loop.call_later(min(waits), self._look_soon)

    async def _flush(self, writer: asyncio.Task[None]) -> None:
        """Let the client have what was put before the end; not for long, since it may not be listening."""
        self._outbox.close()
        _, unwritten = await asyncio.wait({writer}, timeout=FLUSH_WITHIN)
        if unwritten:
            log.info("Session %s did not take its last events.", self._live.session)

    def _refuse(self, sequence: int, error: Exception) -> None:
        answer = answer_to(error) or INTERNAL
        self._put(refused(sequence, answer.reason, answer.message, dict(answer.metadata)))

    # ------------------------------------------------------------------------------------------------ parties

    def _party(self, sequence: int, job: str, groups: Sequence[str]) -> Party:
        """A new acquire, or what another replica has granted."""
        party = self._parties[sequence] = Party(self._live.session, sequence, job, groups, self._engine.clock())
        return party

    def _listen(self, group: str) -> None:
        """Have places in the queue and switches told; that a ticket of the session has changed is told anyhow."""
        if group not in self._unlisten and not self._ending.done():  # a request may outlive its stream
            self._unlisten[group] = self._services.bell.listen(group, self._look_soon)

    def _give_up(self, sequence: int) -> None:
        """End a wait without a place; one that has a place ends by the cancel that follows."""
        gave_up = self._gave_up.get(sequence)
        if gave_up is not None:
            gave_up.set()

    def _drop(self, sequence: int, group: str | None = None) -> None:
        """Forget an acquire, or its part in one group: the rest with it once it was the last."""
        party = self._parties.get(sequence)
        if group is not None and party is not None:
            party.seats.pop(group, None)
        if party is None or group is None or not party.seats:
            self._gave_up.pop(sequence, None)
            self._parties.pop(sequence, None)
        listening = {group for party in self._parties.values() for group in party.groups}
        for left in [group for group in self._unlisten if group not in listening]:
            self._unlisten.pop(left)()

    def _leave(self, workers: list[asyncio.Task[None]]) -> None:
        for worker in workers:
            worker.cancel()
        self._ending.cancel()  # where it has not been set: its task was cancelled, or the greeting failed
        for handle in (self._about_to_read, self._looking):
            if handle is not None:
                handle.cancel()
        self._look_again([])
        for sequence in tuple(self._gave_up):
            self._give_up(sequence)
        for unlisten in self._unlisten.values():
            unlisten()
        self._unlisten.clear()

    def _writer_ended(self, writer: asyncio.Task[None]) -> None:
        if not writer.cancelled():
            error = writer.exception()
            self.end(error if isinstance(error, Exception) else None)


async def _after(before: asyncio.Task[None], request: Coroutine[Any, Any, None]) -> None:
    await asyncio.wait({before})
    await request


_NEVER = 2**63
"""A revision that no picture reaches: while a session is being closed nobody is told that it ends."""
