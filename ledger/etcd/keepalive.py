# SPDX-License-Identifier: Apache-2.0
"""Keepalives of any number of leases over one long-lived stream.

etcd answers the requests of a stream one after the other, by lease id. Each beat waits for the answer to its
own request: an answer to an earlier one proves nothing about a client that was heard from later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Iterator

from ledger.etcd import rpc_pb2 as pb
from ledger.etcd.errors import Closed, DeadlineExceeded, EtcdError, LeaseNotFound, StaleToken, Unavailable
from ledger.etcd.methods import KEEPALIVE
from ledger.etcd.records import LeaseProof
from ledger.etcd.transport import ATTEMPT, Stream, Transport

log = logging.getLogger(__name__)

KeepaliveStream = Stream[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]

_LOGINS_IN_A_ROW = 3


class _Beat:
    """One request: `sent_at` is set anew each time it is sent."""

    __slots__ = ("lease_id", "proof", "sent_at")

    def __init__(self, lease_id: int, proof: asyncio.Future[LeaseProof]) -> None:
        self.lease_id = lease_id
        self.proof = proof
        self.sent_at = 0.0


class _Sent:
    """The beats sent on one stream and not answered yet. Beats given up stay, since their answers still
    come."""

    def __init__(self) -> None:
        self._by_lease: defaultdict[int, deque[_Beat]] = defaultdict(deque)
        self._count = 0

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, beat: _Beat) -> None:
        self._by_lease[beat.lease_id].append(beat)
        self._count += 1

    def take(self, lease_id: int) -> _Beat | None:
        """The oldest beat of this lease; None if there is none."""
        beats = self._by_lease.get(lease_id)
        if not beats:
            return None
        self._count -= 1
        beat = beats.popleft()
        if not beats:
            del self._by_lease[lease_id]
        return beat

    def __iter__(self) -> Iterator[_Beat]:
        for beats in self._by_lease.values():
            yield from beats


class Keepalives:
    """Made by `EtcdClient`. The stream is opened by the first beat and stays open."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._waiting: deque[_Beat] = deque()
        self._something = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._backoff = transport.backoff()
        self._logins = 0
        self._closed = False

    async def beat(self, lease_id: int, *, timeout: float | None = None) -> LeaseProof:
        """Renew a lease, and return when etcd has confirmed a request that was sent after this call.

        By itself this does not prove that the lease still holds its keys: before 3.5.23 etcd may confirm a
            revoked one.

        Args:
            timeout: seconds for everything, other members included; None: the client's.

        Raises:
            LeaseNotFound: the lease has ended.
            DeadlineExceeded: no answer in time; it may have been renewed.
            PermissionDenied, AuthFailed: etcd refused the stream.
        """
        if self._closed:
            raise Closed("a keepalive on a closed client")
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="etcd keepalives")
        beat = _Beat(lease_id, asyncio.get_running_loop().create_future())
        self._enqueue(beat)
        allowed = self._transport.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(allowed):
                return await beat.proof
        except TimeoutError:
            raise DeadlineExceeded(
                f"no member confirmed lease {lease_id:x} in {allowed:.1f} s", ambiguous=True
            ) from None

    async def close(self) -> None:
        """End the stream; beats not answered raise `Closed`."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._fail(Closed("the client was closed during a keepalive"))

    def _enqueue(self, beat: _Beat) -> None:
        self._waiting.append(beat)
        self._something.set()

    def _fail(self, error: EtcdError) -> None:
        """Nothing can be sent: everybody who waits is told."""
        while self._waiting:
            beat = self._waiting.popleft()
            if not beat.proof.done():
                beat.proof.set_exception(error)
        self._something.clear()

    async def _run(self) -> None:
        while True:
            await self._something.wait()
            try:
                await self._life()
            except StaleToken as error:
                self._logins += 1
                if self._logins > _LOGINS_IN_A_ROW:
                    self._logins = 0
                    self._fail(error)
            except Unavailable as error:
                pause = self._backoff.next_pause()
                log.info("Keepalives were interrupted and go on in %.3f s: %s", pause, error.cause)
                await asyncio.sleep(pause)
            except EtcdError as error:
                self._fail(error)
            except Exception as error:
                # A fault of this program must not leave all leases without renewal for good.
                log.exception("Keepalives failed in a way that nobody foresaw; the next one begins anew.")
                self._fail(EtcdError(f"keepalives failed: {error!r}"))

    async def _life(self) -> None:
        """One stream from its beginning to its end."""
        sent = _Sent()
        try:
            async with self._transport.stream(KEEPALIVE) as stream:
                await self._serve(stream, sent)
        finally:
            self._again(sent)

    def _again(self, sent: _Sent) -> None:
        """What the stream left unanswered is sent on the next one, if somebody still waits: it does no
        harm."""
        self._waiting = deque(beat for beat in (*sent, *self._waiting) if not beat.proof.done())
        if self._waiting:
            self._something.set()
        else:
            self._something.clear()

    async def _serve(self, stream: KeepaliveStream, sent: _Sent) -> None:
        """Send and receive until the stream fails, or has been silent for too long while an answer was
        due."""
        try:
            async with asyncio.timeout(None) as silence:
                sender = asyncio.create_task(self._send(stream, sent, silence), name="etcd keepalive sender")
                try:
                    await self._receive(stream, sent, silence)
                finally:
                    sender.cancel()
                    await asyncio.gather(sender, return_exceptions=True)
        except TimeoutError:
            raise DeadlineExceeded(f"{stream.endpoint} answers no keepalive", ambiguous=True) from None

    async def _send(self, stream: KeepaliveStream, sent: _Sent, silence: asyncio.Timeout) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            while self._waiting:
                beat = self._waiting.popleft()
                if beat.proof.done():
                    continue
                if not sent:
                    _answer_due(silence)
                # Before the write, which may take long: a lease's time counts from here.
                beat.sent_at = self._transport.clock()
                sent.add(beat)
                self._transport.requests[KEEPALIVE.name] += 1
                try:
                    await stream.write(pb.LeaseKeepAliveRequest(ID=beat.lease_id))
                except EtcdError:
                    # The stream has ended. The receiver meets the same end and tells why.
                    return

    async def _receive(self, stream: KeepaliveStream, sent: _Sent, silence: asyncio.Timeout) -> None:
        while True:
            response = await stream.read()
            beat = sent.take(response.ID)
            if beat is None:
                raise EtcdError(f"{stream.endpoint} confirmed lease {response.ID:x}, which was not asked for")
            self._backoff.reset()
            self._logins = 0
            if sent:
                _answer_due(silence)
            elif not silence.expired():
                silence.reschedule(None)
            if beat.proof.done():
                continue
            if response.TTL > 0:
                beat.proof.set_result(LeaseProof(beat.lease_id, response.TTL, beat.sent_at))
            else:
                beat.proof.set_exception(LeaseNotFound(f"lease {beat.lease_id:x} has ended"))


def _answer_due(silence: asyncio.Timeout) -> None:
    """Any answer within an attempt's time will do: behind thousands of others one may have to wait longer."""
    if not silence.expired():
        silence.reschedule(asyncio.get_running_loop().time() + ATTEMPT)
