# SPDX-License-Identifier: Apache-2.0
"""Everything that can go wrong with etcd: one class for each cause, and one table from etcd's words to the
classes.

etcd tells many causes apart by the text of its message alone (`INVALID_ARGUMENT` is a missing key, a stale
token and a request too large), so the text decides first and the gRPC status only where the text is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import grpc


class EtcdError(Exception):
    """Base of all errors of etcd; raised itself where etcd refused for a reason that has no class here.

    Attributes:
        code: the error's fixed name, in capitals.
        cause: what happened, in etcd's or the transport's words.
        next_step: what the reader can do about it.
        resent: an earlier attempt of the same call may have been applied before this one failed.
    """

    code: ClassVar[str] = "ETCD_REFUSED"
    next_step: ClassVar[str] = "Look the message up in etcd's log."

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.resent = False

    def __str__(self) -> str:
        return f"{self.code}: {self.cause}. {self.next_step}"


class Unavailable(EtcdError):
    """No member answered in time, or the one that was asked could not serve.

    Attributes:
        ambiguous: the request may have been applied. Always False for reads, which apply nothing.
    """

    code = "ETCD_UNAVAILABLE"
    next_step = "Check that a majority of etcd's members is up and that one of the endpoints is reachable."

    def __init__(self, cause: str, *, ambiguous: bool) -> None:
        super().__init__(cause)
        self.ambiguous = ambiguous


class DeadlineExceeded(Unavailable):
    """The time allowed passed without an answer."""

    code = "ETCD_DEADLINE_EXCEEDED"
    next_step = "Check etcd's load and disk; read again before deciding that nothing was written."


class NoLeader(Unavailable):
    """The member that was asked sees no leader: it is cut off from its majority, or an election is on."""

    code = "ETCD_NO_LEADER"


class Overloaded(Unavailable):
    """etcd has more unapplied requests than it accepts."""

    code = "ETCD_OVERLOADED"
    next_step = "Send less, or give etcd a faster disk."


class Closed(EtcdError):
    """This client was closed while, or before, it was used."""

    code = "ETCD_CLIENT_CLOSED"
    next_step = "Make a new client."


class StaleToken(EtcdError):
    """The login has expired or the store of users has changed. The client logs in again by itself."""

    code = "ETCD_STALE_TOKEN"
    next_step = "If this persists, check the clocks and the token's time to live (etcd's --auth-token-ttl)."


class AuthFailed(EtcdError):
    """User or password is wrong, or etcd asks for a user and none was given."""

    code = "ETCD_AUTH_FAILED"
    next_step = "Give the user and password that etcd knows."


class AuthNotEnabled(EtcdError):
    """A login was tried where etcd has no authentication."""

    code = "ETCD_AUTH_NOT_ENABLED"
    next_step = "Turn authentication on, or give no user."


class PermissionDenied(EtcdError):
    """The user may not read or write this key."""

    code = "ETCD_PERMISSION_DENIED"
    next_step = "Grant the user's role this range of keys."


class LeaseNotFound(EtcdError):
    """The lease has ended or was revoked, and everything under it is gone."""

    code = "ETCD_LEASE_NOT_FOUND"
    next_step = "Grant a new lease and write the keys again."


class LeaseExists(EtcdError):
    """A lease with this id exists already."""

    code = "ETCD_LEASE_EXISTS"
    next_step = "Use another id."


class KeyNotFound(EtcdError):
    """A put with `ignore_lease` met no key: it was deleted, or its lease has ended."""

    code = "ETCD_KEY_NOT_FOUND"
    next_step = "Read again; guard the put by the key's create revision."


class Compacted(EtcdError):
    """The history asked for is gone.

    Attributes:
        revision: the oldest revision that etcd still has; 0 where it did not say.
    """

    code = "ETCD_COMPACTED"
    next_step = "List again, and watch from that revision."

    def __init__(self, cause: str, revision: int = 0) -> None:
        super().__init__(cause)
        self.revision = revision


class FutureRevision(EtcdError):
    """The revision asked for is not yet there: this member lags, or etcd was restored from an older
    snapshot."""

    code = "ETCD_FUTURE_REVISION"
    next_step = "List again without a revision."


class ClusterChanged(EtcdError):
    """The endpoint now answers for another cluster: etcd was restored or replaced."""

    code = "ETCD_CLUSTER_CHANGED"
    next_step = "Drop everything read before, and list again."


class WatchCancelled(EtcdError):
    """etcd ended the watch."""

    code = "ETCD_WATCH_CANCELLED"
    next_step = "List again, and watch from that revision."


class InvalidRequest(EtcdError):
    """A request that etcd can never accept, such as one key put twice in a transaction."""

    code = "ETCD_INVALID_REQUEST"
    next_step = "This is a fault of the caller."


class TooLarge(InvalidRequest):
    """A request or answer above etcd's limits (1.5 MiB, 128 operations) or the client's (64 MiB)."""

    code = "ETCD_TOO_LARGE"
    next_step = "Write or read less at once."


class QuotaExceeded(EtcdError):
    """etcd's database is full: nothing can be written until space is made."""

    code = "ETCD_QUOTA_EXCEEDED"
    next_step = "Compact, defragment, then disarm the alarm: `etcdctl alarm disarm`."


class Corrupt(EtcdError):
    """etcd found its members' data to differ."""

    code = "ETCD_CORRUPT"
    next_step = "Stop writing, and restore the member that differs."


def _not_applied(kind: type[Unavailable]) -> Callable[[str], EtcdError]:
    return lambda cause: kind(cause, ambiguous=False)


def _may_be_applied(kind: type[Unavailable]) -> Callable[[str], EtcdError]:
    return lambda cause: kind(cause, ambiguous=True)


_BY_TEXT: tuple[tuple[str, Callable[[str], EtcdError]], ...] = (
    ("requested lease not found", LeaseNotFound),
    ("lease already exists", LeaseExists),
    ("key not found", KeyNotFound),
    ("required revision has been compacted", Compacted),
    ("required revision is a future revision", FutureRevision),
    ("request is too large", TooLarge),
    ("too many operations in txn request", TooLarge),
    ("message larger than max", TooLarge),
    ("database space exceeded", QuotaExceeded),
    ("etcdserver: no space", QuotaExceeded),
    ("corrupt cluster", Corrupt),
    ("permission denied", PermissionDenied),
    ("invalid auth token", StaleToken),
    ("revision of auth store is old", StaleToken),
    ("user name is empty", StaleToken),
    ("authentication failed", AuthFailed),
    ("authentication is not enabled", AuthNotEnabled),
    # From here on etcd has refused, or was never reached, before anything could be applied.
    ("etcdserver: no leader", _not_applied(NoLeader)),
    ("too many requests", _not_applied(Overloaded)),
    ("raft proposal dropped", _not_applied(Unavailable)),
    ("rpc not supported for learner", _not_applied(Unavailable)),
    ("failed to connect to all addresses", _not_applied(Unavailable)),
    ("DNS resolution failed", _not_applied(Unavailable)),
)

_BY_STATUS: dict[grpc.StatusCode, Callable[[str], EtcdError]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: _may_be_applied(DeadlineExceeded),
    grpc.StatusCode.UNAVAILABLE: _may_be_applied(Unavailable),
    # A server that is stopping, and one whose connection breaks in mid-answer, may say any of these.
    grpc.StatusCode.UNKNOWN: _may_be_applied(Unavailable),
    grpc.StatusCode.INTERNAL: _may_be_applied(Unavailable),
    grpc.StatusCode.CANCELLED: _may_be_applied(Unavailable),
    grpc.StatusCode.ABORTED: _may_be_applied(Unavailable),
    grpc.StatusCode.UNAUTHENTICATED: StaleToken,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: QuotaExceeded,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.UNIMPLEMENTED: InvalidRequest,
    grpc.StatusCode.DATA_LOSS: Corrupt,
}


def from_text(text: str) -> EtcdError | None:
    """The error that etcd's words name, or None if they are unknown. Watches are cancelled in words alone."""
    return next((make(text) for known, make in _BY_TEXT if known in text), None)


def from_status(status: grpc.StatusCode, details: str, endpoint: str) -> EtcdError:
    """The error for a call that `endpoint` ended with `status` and `details`."""
    cause = f"{endpoint} answered {status.name}: {details}"
    return from_text(cause) or _BY_STATUS.get(status, EtcdError)(cause)
