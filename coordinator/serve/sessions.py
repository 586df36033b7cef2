# SPDX-License-Identifier: Apache-2.0
"""Sessions: one client process's life, as a lease of etcd and a key on it.

The id of a session is the id of its lease, chosen here at random, so that opening can be repeated. A replica keeps
nothing of a session that another could not take over: `Sessions` only writes and reads the ledger.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Collection

from msgspec import Struct
from msgspec.structs import replace

from coordinator.apply.engine import Engine
from coordinator.apply.errors import Conflict, EngineBehind, EngineError
from coordinator.decide.commands import Refusal, cancel
from coordinator.serve import validate
from coordinator.serve.expiry import Expiry
from ledger.codec import decode, encode
from ledger.errors import LedgerError
from ledger.etcd.errors import KeyNotFound
from ledger.etcd.records import RangeResult
from ledger.etcd.txn import Get, Put, absent, modified_at
from ledger.failpoint import hit
from ledger.kept import Kept
from ledger.records import Process, Session, Ticket
from timeslice_proto.v1 import coordinator_pb2

log = logging.getLogger(__name__)

WITHIN = 5.0
"""Seconds for one step in the ledger."""


class Live(Struct, frozen=True):
    """A session that this replica has opened or resumed.

    Attributes:
        session: its id.
        process: its client.
        ttl_ms: of its lease.
        mod: the mod revision of its key: who finds a later one that names another replica has been left.
    """

    session: str
    process: Process | None
    ttl_ms: int
    mod: int


class Sessions:
    """Opens, resumes, proves, keeps alive and ends sessions."""

    def __init__(
        self, engine: Engine, expiry: Expiry, *, new_secret: Callable[[], str] = lambda: secrets.token_hex(16)
    ) -> None:
        self._engine = engine
        self._expiry = expiry
        self._new_secret = new_secret

    async def open(self, request: coordinator_pb2.OpenRequest) -> tuple[Live, str]:
        """A new session, and its secret, which is told once and kept as a hash.

        Raises:
            Refusal: the request is malformed.
            EtcdError: etcd did not carry it out; what was begun ends by its TTL.
        """
        process = validate.session_process(request.process)
        seconds = validate.ttl_seconds(request.ttl_ms)
        client = self._engine.client
        proof = await client.grant(seconds, lease_id=client.new_lease_id())
        hit("replica.session.leased")
        session, secret = f"{proof.lease_id:016x}", self._new_secret()
        record = Session(
            process=process,
            secret_hash=hash_of(secret),
            replica=self._engine.replica_id,
            ttl_ms=proof.ttl * 1000,
        )
        key = self._engine.keys.session(session)
        put = Put(key, encode(record), lease=proof.lease_id)
        done = await client.txn([absent(key)], [put], [Get(key)], idempotent=True)
        hit("replica.session.opened")
        there = done.responses[0]
        # Where it is there already it is this very put, sent again for want of an answer: nobody else knows the id.
        mod = there.kvs[0].mod_revision if isinstance(there, RangeResult) and there.kvs else done.revision
        await self.caught_up(done.revision)
        return Live(session, process, record.ttl_ms, mod), secret

    async def resume(self, session: str, secret: str, last_sequence: int) -> Live:
        """Take the session over from whichever replica served it.

        Raises:
            Refusal: SESSION_EXPIRED, BAD_SECRET.
            Conflict: others took it over again and again.
        """
        kept = await self._take(session, secret, lambda record: max(record.sequence, last_sequence))
        hit("replica.session.resumed")
        await self.caught_up(kept.mod)
        return Live(session, kept.value.process, kept.value.ttl_ms, kept.mod)

    async def hear(self, session: str, secret: str) -> Kept[Session]:
        """A beat has come outside any stream: from now on this replica is the one that ends the session (rule 30).

        Raises as `resume`.
        """
        known = self._engine.picture.session(session)
        if known is not None:
            _prove(known.value, secret)
            self._expiry.heard(session)
        kept = await self._read(session)  # from etcd: on an older view another replica might end it too early
        _prove(kept.value, secret)
        if kept.value.replica == self._engine.replica_id:
            return kept
        return await self._take(session, secret, lambda record: record.sequence)

    async def _take(self, session: str, secret: str, sequence: Callable[[Session], int]) -> Kept[Session]:
        engine, key = self._engine, self._engine.keys.session(session)
        deadline = engine.clock() + WITHIN
        while engine.clock() < deadline:
            kept = await self._read(session)
            _prove(kept.value, secret)
            record = replace(kept.value, replica=engine.replica_id, sequence=sequence(kept.value))
            put = Put(key, encode(record), ignore_lease=True)
            try:
                done = await engine.client.txn([modified_at(key, kept.mod)], [put], idempotent=False)
            except KeyNotFound:
                continue
            if done.succeeded:
                return replace(kept, value=record, mod=done.revision)
        raise Conflict("Several replicas took the session over at the same time.")

    async def prove(self, session: str, secret: str) -> Kept[Session]:
        """The session's record, if this is its secret.

        Raises:
            Refusal: SESSION_EXPIRED, BAD_SECRET.
        """
        validate.lease_of(session)
        kept = self._engine.picture.session(session) or await self._read(session)
        _prove(kept.value, secret)
        return kept

    def heard(self, session: str) -> None:
        """A beat has arrived on the session's stream."""
        self._expiry.heard(session)

    async def beat(self, session: str, within: float) -> int:
        """Ask etcd to keep the session's lease alive. To be called only when the client has been heard (rule 16).

        Returns:
            The TTL in milliseconds. It counts from when the client sent what called for this.

        Raises:
            LeaseNotFound: the session has ended.
            EtcdError: etcd did not confirm it within so many seconds.
        """
        hit("replica.beat.heard")
        proof = await self._engine.client.beat(validate.lease_of(session), timeout=within)
        hit("replica.beat.renewed")
        return proof.ttl * 1000

    def forgotten(self, session: str, last_sequence: int, wanted: Collection[int]) -> list[tuple[str, Kept[Ticket]]]:
        """The tickets that the client does not know or want any more (rule 26), each with its group."""
        return [
            (group, ticket)
            for group, ticket in self._engine.picture.tickets_of(session)
            if ticket.value.sequence <= last_sequence and ticket.value.sequence not in wanted
        ]

    async def prune(self, session: str, last_sequence: int, wanted: Collection[int]) -> None:
        """Give back what is forgotten. What cannot be given back now is logged: the next beat does it again."""
        for group, ticket in self.forgotten(session, last_sequence, wanted):
            sequence = ticket.value.sequence
            try:
                await self.take_back(session, group, ticket.name, sequence)
            except (EngineError, LedgerError, Refusal) as error:
                log.warning("Ticket %d of session %s is not wanted and stays for now: %s", sequence, session, error)

    async def take_back(self, session: str, group: str, job: str, sequence: int) -> None:
        """Cancel one acquire, whatever has become of it. Raises as `Engine.command`."""
        await self._engine.command(group, lambda view: cancel(view, job, session, sequence), within=WITHIN)

    async def close(self, session: str, *, abandoned: bool = False) -> None:
        """Give back everything of the session, then end its lease. Its held turns end cleanly.

        Args:
            abandoned: nothing is given back: the client's process is no more, and its turns are lost with the lease.

        Raises:
            EtcdError, EngineError, LedgerError: it is not closed; it may be tried again, or ends by its TTL.
        """
        if abandoned:
            await self._engine.client.revoke(validate.lease_of(session))
            return
        newest = await self._engine.client.get_prefix(self._engine.keys.session(session), limit=1)
        await self.caught_up(newest.revision)
        for group, ticket in self._engine.picture.tickets_of(session):
            await self.take_back(session, group, ticket.name, ticket.value.sequence)
        hit("replica.session.given_back")
        await self._engine.client.revoke(validate.lease_of(session))
        hit("replica.session.closed")

    async def caught_up(self, revision: int) -> None:
        """Wait until the picture shows this revision. Raises EngineBehind when it does not."""
        try:
            await self._engine.view.reached(revision, WITHIN)
        except TimeoutError as error:
            raise EngineBehind("This replica's view of etcd is not current.") from error

    async def _read(self, session: str) -> Kept[Session]:
        validate.lease_of(session)
        kv = await self._engine.client.get(self._engine.keys.session(session))
        if kv is None:
            raise Refusal("SESSION_EXPIRED", f"Session {session} has ended.", {"session": session})
        return Kept(session, decode(Session, kv.value), kv.create_revision, kv.mod_revision, kv.lease)


def beat_within(ttl_ms: int) -> float:
    """Seconds that etcd is given to confirm a beat: no more than until the next, when the client goes elsewhere."""
    return min(ttl_ms / 3000, WITHIN)


def hash_of(secret: str) -> str:
    """SHA-256, hexadecimal. A secret has 128 random bits, so that no slower hash is called for."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _prove(record: Session, secret: str) -> None:
    if not hmac.compare_digest(record.secret_hash, hash_of(secret)):
        raise Refusal("BAD_SECRET", "That is not the session's secret.")
