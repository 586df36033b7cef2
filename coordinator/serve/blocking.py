# SPDX-License-Identifier: Apache-2.0
"""Acquire as one call that blocks: for simple clients, which send their beats as calls of their own."""

from __future__ import annotations

import asyncio

from coordinator.apply.errors import EngineError
from coordinator.decide.commands import Refusal
from coordinator.serve import validate
from coordinator.serve.acquire import current_traceparent, take_place
from coordinator.serve.party import Party
from coordinator.serve.seat import Event
from coordinator.serve.services import Services
from ledger.errors import LedgerError
from ledger.etcd.errors import EtcdError
from ledger.kept import Kept
from ledger.records import Session
from timeslice_proto.v1 import coordinator_pb2


class BlockingAcquire:
    """One call. Cancelled by its client, or past its deadline, it leaves no ticket.

    When the replica leaves, the place is kept: the same call at another replica finds it again.
    """

    def __init__(self, services: Services, session: Kept[Session], request: coordinator_pb2.AcquireRequest) -> None:
        validate.acquire(request)
        self._services = services
        self._session = session
        self._request = request
        engine = services.engine
        self._party = Party(session.name, request.sequence, request.job, request.groups, engine.clock())
        self._gave_up = asyncio.Event()
        self._wake = asyncio.Event()
        self._ending: Exception | None = None

    def end(self, error: Exception) -> None:
        self._ending = error
        self._gave_up.set()
        self._wake.set()

    async def run(self) -> coordinator_pb2.Granted:
        """Wait until it is granted.

        Raises:
            Refusal: it is refused, the session has ended, or the replica leaves.
            LedgerError, EngineError, EtcdError: it could not be carried out.
        """
        services = self._services
        services.registry.enter(self)
        unsubscribe = services.engine.subscribe_session(self._session.name, self._wake.set)
        asked = services.registry.spawn(self._ask(), f"acquire {self._party.sequence} of session {self._session.name}")
        granted: coordinator_pb2.Granted | None = None
        try:
            await asyncio.shield(asked)
            granted = await self._granted()
            return granted
        finally:
            unsubscribe()
            services.registry.leave(self)
            if granted is None and not services.registry.leaving:
                self._gave_up.set()
                services.registry.spawn(self._undo(asked), f"ticket of {self._party.job} is taken back")

    async def _ask(self) -> None:
        """Errors are kept for `run`: this goes on when the caller has left."""
        try:
            services, process = self._services, self._session.value.process
            self._request.traceparent = self._request.traceparent or current_traceparent()
            await take_place(services.engine, self._party, self._request, process, self._gave_up, _untold)
        except (Refusal, LedgerError, EngineError, EtcdError) as error:
            self._ending = error

    async def _granted(self) -> coordinator_pb2.Granted:
        picture = self._services.engine.picture
        while True:
            if self._ending is not None:
                raise self._ending
            if picture.revision >= self._session.mod and picture.session(self._session.name) is None:
                gone = Refusal("SESSION_EXPIRED", "The session has ended: its lease is gone.")
                raise picture.session_error(self._session.name) or gone
            told = self._party.look(picture, self._services.engine.clock())
            for event in (*told, self._party.failure or Event()):
                match event.WhichOneof("event"):
                    case "granted":
                        return event.granted
                    case "refused":
                        raise Refusal(event.refused.reason, event.refused.message, dict(event.refused.metadata))
                    case _:
                        pass
            await self._wake.wait()
            self._wake.clear()

    async def _undo(self, asked: asyncio.Task[None]) -> None:
        """Take back the tickets, a refused one too, once the request that may have made it has ended."""
        await asyncio.wait({asked})
        party = self._party
        if party.asking and isinstance(self._ending, Refusal):
            return  # it never had one
        for group in party.groups:
            await self._services.sessions.take_back(party.session, group, party.job, party.sequence)


def _untold(_event: Event) -> None:
    """Progress has no place in a call with one answer."""
