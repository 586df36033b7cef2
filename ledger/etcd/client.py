# SPDX-License-Identifier: Apache-2.0
"""The ledger's client of etcd: keys, transactions, watches and leases, over whichever member serves."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random, SystemRandom
from types import TracebackType
from typing import Self

from ledger.etcd import methods, records, txn
from ledger.etcd import rpc_pb2 as pb
from ledger.etcd.clock import Clock, boottime
from ledger.etcd.errors import Compacted, LeaseExists, LeaseNotFound
from ledger.etcd.keepalive import Keepalives
from ledger.etcd.lease import OwnedLease
from ledger.etcd.records import (
    Alarm,
    AlarmType,
    DeleteResult,
    KeyValue,
    LeaseInfo,
    LeaseProof,
    Member,
    MemberStatus,
    PutResult,
    RangeResult,
    TxnResult,
    WatchBatch,
)
from ledger.etcd.security import Security
from ledger.etcd.transport import Around, Transport
from ledger.etcd.txn import Compare, Delete, Get, Op, Put, Txn, prefix_end
from ledger.etcd.watch import Watch

PAGE = 1_000
"""Keys read in one request; a longer list takes several, all at the revision of the first."""


class EtcdClient:
    """One client for each process and cluster. To be made in, and used from, one event loop.

    Every call may raise `Unavailable` when no member answered in time and `EtcdError` when etcd refused.
    After `Unavailable.ambiguous` a write may have been applied: read before deciding.

    Args:
        endpoints: `[http[s]://]host:port` of the members. One is in use, the next one after a failure.
        security: TLS files and login.
        timeout: seconds for a call, attempts at other members included; one attempt has at most 1 s.
        clock: seconds; must go on while the machine is suspended.
        around: entered around each unary call with the method's name, for tracing and metrics.
        random: for lease ids, jitter and the order of endpoints.

    Raises:
        ValueError: no endpoint, or one that is none.
        OSError: a TLS file cannot be read.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        security: Security | None = None,
        timeout: float = 5.0,
        clock: Clock = boottime,
        around: Around | None = None,
        random: Random | None = None,
    ) -> None:
        self._random = random or SystemRandom()
        self._transport = Transport(
            endpoints,
            security or Security(),
            timeout=timeout,
            clock=clock,
            around=around,
            random=self._random,
        )
        self._keepalives = Keepalives(self._transport)
        self._watches: set[Watch] = set()
        self._leases: set[OwnedLease] = set()

    @property
    def requests(self) -> Counter[str]:
        """How many requests of each method were sent, every attempt, watch creation and keepalive counted."""
        return self._transport.requests

    @property
    def timeout(self) -> float:
        """Seconds for a call that names none."""
        return self._transport.timeout

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every watch and keepalive here and on the server, then the connections. Leases are not
        revoked."""
        for lease in tuple(self._leases):
            await lease.close(revoke=False)
        for watch in tuple(self._watches):
            await watch.close()
        await self._keepalives.close()
        await self._transport.close()

    # Keys

    async def get(self, key: bytes, *, serializable: bool = False) -> KeyValue | None:
        """One key, or None. `serializable`: as the member asked knows it, perhaps stale, but without a
        majority."""
        request = pb.RangeRequest(key=key, serializable=serializable)
        response = await self._transport.call(methods.RANGE, request, leader=not serializable)
        return records.key_value(response.kvs[0]) if response.kvs else None

    async def get_prefix(
        self, prefix: bytes, *, revision: int = 0, limit: int = 0, keys_only: bool = False
    ) -> RangeResult:
        """All keys that begin with `prefix`, as of one revision.

        Args:
            revision: as of then; 0: as of now, which is then the result's `revision`.
            limit: at most so many keys; 0: all.

        Raises:
            Compacted, FutureRevision: etcd does not have this revision. `Compacted` also if it went while
                reading.
        """
        start, end = prefix or b"\0", prefix_end(prefix)
        found: list[KeyValue] = []
        while True:
            page = min(PAGE, limit - len(found)) if limit else PAGE
            request = pb.RangeRequest(key=start, range_end=end, revision=revision, limit=page, keys_only=keys_only)
            response = await self._transport.call(methods.RANGE, request)
            if not found:
                first = response
                revision = revision or response.header.revision
            found.extend(map(records.key_value, response.kvs))
            if not response.more or len(found) == limit:
                header = records.header(first.header)
                return RangeResult(header, tuple(found), first.count, response.more)
            start = found[-1].key + b"\0"

    async def put(
        self,
        key: bytes,
        value: bytes,
        *,
        lease: int = 0,
        ignore_lease: bool = False,
        idempotent: bool = False,
    ) -> PutResult:
        """Put one key whatever is there; see `Put` for leases.

        Args:
            idempotent: it may be sent twice, so that it may also overwrite what another wrote after the
                first.
        """
        request = txn.put_request(Put(key, value, lease, ignore_lease))
        response = await self._transport.call(methods.PUT, request, idempotent=idempotent)
        return PutResult(records.header(response.header))

    async def delete(self, key: bytes, *, idempotent: bool = False) -> DeleteResult:
        """Delete one key. `idempotent`: as for `put`."""
        return await self._delete(Delete(key), idempotent)

    async def delete_prefix(self, prefix: bytes, *, idempotent: bool = False) -> DeleteResult:
        """Delete all keys that begin with `prefix`. `idempotent`: as for `put`."""
        return await self._delete(txn.delete_prefix(prefix), idempotent)

    async def _delete(self, delete: Delete, idempotent: bool) -> DeleteResult:
        request = pb.DeleteRangeRequest(key=delete.key or b"\0", range_end=delete.range_end)
        response = await self._transport.call(methods.DELETE, request, idempotent=idempotent)
        return DeleteResult(records.header(response.header), response.deleted)

    async def txn(
        self,
        compares: Sequence[Compare],
        success: Sequence[Op],
        failure: Sequence[Op] = (),
        *,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> TxnResult:
        """One atomic transaction: `success` if all `compares` hold, else `failure`.

        Any number of operations, up to 128 compares (a prefix is one).

        Args:
            idempotent: sent twice it leaves what it leaves when sent once, and the caller can tell its own
                success: such as a unique key put if absent, else read.
            timeout: seconds for everything; None: the client's.

        Raises:
            LeaseNotFound, KeyNotFound: nothing was done; see `Put`.
            TooLarge: above 1.5 MiB, or 128 compares.
            InvalidRequest: one key is put twice.
        """
        request = txn.to_request(compares, success, failure)
        idempotent = idempotent or all(isinstance(op, Get) for op in (*success, *failure))
        response = await self._transport.call(methods.TXN, request, idempotent=idempotent, timeout=timeout)
        return txn.from_response(response)

    async def txns(self, each: Sequence[Txn], *, idempotent: bool = False, timeout: float) -> tuple[TxnResult, ...]:
        """Several transactions in one request, at one revision; the answer of each.

        For `GroupCommit`, which sees to what they must not have in common. An error is that of all: etcd refuses them
        all for one's sake.

        Args:
            idempotent: each of them is, as for `txn`.
            timeout: seconds for everything.
        """
        request = txn.side_by_side(each)
        response = await self._transport.call(methods.TXN, request, idempotent=idempotent, timeout=timeout)
        return txn.each_result(response)

    def watch(
        self,
        key: bytes,
        start_revision: int = 0,
        *,
        exact: bool = False,
        previous: bool = False,
        progress_notify: bool = False,
        cluster_id: int = 0,
        timeout: float | None = None,
        deliver: Callable[[WatchBatch], Awaitable[None]] | None = None,
    ) -> Watch:
        """Watch all keys that begin with `key`: `async with client.watch(...) as batches: async for batch in
        batches`.

        Args:
            start_revision: the first revision to deliver, a list's revision + 1; 0: from now on.
            exact: this key alone.
            previous: with each event the key before it.
            progress_notify: a batch without events now and then (every 10 minutes unless etcd is told
                otherwise).
            cluster_id: of the list; another cluster raises `ClusterChanged`. 0: that of the first answer.
            timeout: seconds until a member must have confirmed the watch on entering; None: the client's.
            deliver: called with each batch in turn, in place of an iteration. What it raises ends the watch.
        """
        watch = Watch(
            self._transport,
            key or b"\0",
            b"" if exact else prefix_end(key),
            start_revision,
            previous=previous,
            progress_notify=progress_notify,
            cluster_id=cluster_id,
            timeout=self._transport.timeout if timeout is None else timeout,
            on_close=self._watches.discard,
            deliver=deliver,
        )
        self._watches.add(watch)
        return watch

    # Leases

    def new_lease_id(self) -> int:
        """A random id, for whoever must write it down before the lease is granted."""
        return self._random.getrandbits(63) or 1

    async def grant(self, ttl: int, *, lease_id: int | None = None) -> LeaseProof:
        """A new lease. Its id is chosen here, so that the grant can be sent again.

        Args:
            ttl: seconds; etcd has a least one (1.5 election timeouts, rounded up) and may grant more.

        Raises:
            LeaseExists: `lease_id` was in use before this call.
        """
        wanted = self.new_lease_id() if lease_id is None else lease_id
        sent_at = self._transport.clock()
        request = pb.LeaseGrantRequest(TTL=ttl, ID=wanted)
        try:
            response = await self._transport.call(methods.LEASE_GRANT, request, idempotent=True)
        except LeaseExists as error:
            if not error.resent:
                raise
            # An earlier attempt was applied and its answer lost. The least that etcd granted is what was
            # asked.
            return LeaseProof(wanted, ttl, sent_at)
        return LeaseProof(response.ID, response.TTL, sent_at)

    async def lease(self, ttl: int, *, lease_id: int | None = None) -> OwnedLease:
        """Grant a lease and keep it alive until it is closed. Arguments and errors as `grant`."""
        proof = await self.grant(ttl, lease_id=lease_id)
        lease = OwnedLease(proof, self._keepalives, self.revoke, self._transport.clock, self._leases.discard)
        self._leases.add(lease)
        return lease

    async def revoke(self, lease_id: int) -> bool:
        """End a lease and delete the keys under it. False: it had ended already."""
        try:
            await self._transport.call(methods.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=lease_id), idempotent=True)
        except LeaseNotFound as error:
            return error.resent
        return True

    async def beat(self, lease_id: int, *, timeout: float | None = None) -> LeaseProof:
        """Renew a lease once; see `Keepalives.beat`. Thousands may be under way at once, over one stream."""
        return await self._keepalives.beat(lease_id, timeout=timeout)

    async def time_to_live(self, lease_id: int, *, keys: bool = False) -> LeaseInfo:
        """How long a lease lives without a renewal. Raises LeaseNotFound if it has ended."""
        request = pb.LeaseTimeToLiveRequest(ID=lease_id, keys=keys)
        response = await self._transport.call(methods.LEASE_TIME_TO_LIVE, request)
        if response.TTL < 0:
            raise LeaseNotFound(f"lease {lease_id:x} has ended")
        return LeaseInfo(lease_id, response.TTL, response.grantedTTL, tuple(response.keys))

    # The server

    async def compact(self, revision: int) -> None:
        """Forget the history before `revision`. That it is forgotten already is success."""
        # Sending it again does no harm, for the same reason.
        with contextlib.suppress(Compacted):
            await self._transport.call(methods.COMPACT, pb.CompactionRequest(revision=revision), idempotent=True)

    async def members(self) -> tuple[Member, ...]:
        """The cluster's members."""
        response = await self._transport.call(methods.MEMBER_LIST, pb.MemberListRequest(linearizable=True))
        return tuple(
            Member(member.ID, member.name, tuple(member.peerURLs), tuple(member.clientURLs), member.isLearner)
            for member in response.members
        )

    async def alarms(self) -> tuple[Alarm, ...]:
        """What the members complain of: a full database, or corrupt data."""
        kinds = {pb.NOSPACE: AlarmType.NOSPACE, pb.CORRUPT: AlarmType.CORRUPT}
        request = pb.AlarmRequest(action=pb.AlarmRequest.GET)
        response = await self._transport.call(methods.ALARM, request, idempotent=True)
        return tuple(Alarm(alarm.memberID, kinds[alarm.alarm]) for alarm in response.alarms)

    async def status(self, endpoint: str | None = None) -> MemberStatus:
        """One member's view of itself, also when it sees no leader. `endpoint`: as given; None: the one in
        use."""
        response = await self._transport.call(methods.STATUS, pb.StatusRequest(), leader=False, endpoint=endpoint)
        return MemberStatus(
            records.header(response.header),
            response.version,
            response.dbSize,
            response.dbSizeInUse,
            response.leader,
            tuple(response.errors),
            response.isLearner,
        )
