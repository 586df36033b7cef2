# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as the caller of the library sees it.

    TimesliceError
    ├── InvalidRequest      BadName BadRequest NodeTwice DeviceTwice TooLarge Unsupported
    ├── NotFound            NoSuchGroup NoSuchJob NoSuchNode NoSuchDevice NoSuchOperation
    ├── NotNow              AlreadyQueued JobQuarantined JobPinned GroupDeleting DeviceClaimed JobsParked NodeDropped
    │                       GroupInCharge SwitchFailed AcquireCancelled
    ├── LockLost            Evicted TurnLost
    ├── NotHolder           StaleToken
    ├── SessionEnded        SessionExpired BadSecret SessionTaken
    ├── Unauthenticated
    ├── Unavailable         StoreUnavailable ReplicaLeaving ReplicaBehind DeadlineExceeded Conflict InternalError
    ├── RecordUnusable      RecordMalformed RecordTooNew
    └── of the client alone AcquireTimeout (a TimeoutError too)  ClientClosed  ForkedClient
                          HelperFailed

Each reason of `errors.proto` has its class here; a reason that this version does not know becomes a plain
`TimesliceError` that still carries it. Nothing in here imports gRPC or protobuf.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_NO_METADATA: Mapping[str, str] = MappingProxyType({})

DOMAIN = "timeslice"  # of the google.rpc.ErrorInfo by which reasons travel


class TimesliceError(Exception):
    """Base of everything that this library raises on purpose.

    Attributes:
        message: what happened, a sentence.
        code: the name of the gRPC status code, for example "FAILED_PRECONDITION".
        reason: the reason of `errors.proto`, in capitals; a stable word to branch on.
        next_step: what the reader can do about it, a sentence; may be empty.
        metadata: details by name, as the server sent them.
    """

    code: str = "UNKNOWN"
    reason: str = "UNSPECIFIED"
    next_step: str = ""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        reason: str | None = None,
        next_step: str | None = None,
        metadata: Mapping[str, str] = _NO_METADATA,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if reason is not None:
            self.reason = reason
        if next_step is not None:
            self.next_step = next_step
        self.metadata = dict(metadata)

    def __str__(self) -> str:
        return f"{self.message} {self.next_step}".rstrip()


# ---------------------------------------------------------------- the request itself


class InvalidRequest(TimesliceError):
    """The request cannot be right, whatever the state of the system."""

    code = "INVALID_ARGUMENT"


class BadName(InvalidRequest):
    """No name for a group, job, node or device."""

    reason = "BAD_NAME"
    next_step = "Use 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning and ending with a letter or digit."


class BadRequest(InvalidRequest):
    """A value is missing, out of range or contradicts another."""

    reason = "BAD_REQUEST"


class NodeTwice(InvalidRequest):
    """A group names a node twice."""

    reason = "NODE_TWICE"
    next_step = "Name each node once, with all its devices."


class DeviceTwice(InvalidRequest):
    """A group names a device twice."""

    reason = "DEVICE_TWICE"
    next_step = "Name each device once."


class TooLarge(InvalidRequest):
    """The request is over the size that the ledger takes."""

    reason = "TOO_LARGE"
    next_step = "Split it."


class Unsupported(InvalidRequest):
    """This version of the system does not offer it."""

    code = "UNIMPLEMENTED"
    reason = "UNSUPPORTED"


# ---------------------------------------------------------------- what it names


class NotFound(TimesliceError):
    """What the request names is not there."""

    code = "NOT_FOUND"


class NoSuchGroup(NotFound):
    reason = "NO_SUCH_GROUP"
    next_step = "See `timeslice get groups`; make one with `timeslice group put`."


class NoSuchJob(NotFound):
    reason = "NO_SUCH_JOB"
    next_step = "See `timeslice get jobs`."


class NoSuchNode(NotFound):
    reason = "NO_SUCH_NODE"
    next_step = "See `timeslice get nodes`; start an agent there with `timeslice agent`."


class NoSuchDevice(NotFound):
    """The node's agent does not report that device."""

    reason = "NO_SUCH_DEVICE"
    next_step = "See `timeslice get nodes` for the devices that each agent reports."


class NoSuchOperation(NotFound):
    """A node agent does not know of it (any more)."""

    reason = "NO_SUCH_OPERATION"


# ---------------------------------------------------------------- the state of things forbids it


class NotNow(TimesliceError):
    """The request is right, and the state of the system forbids it."""

    code = "FAILED_PRECONDITION"


class AlreadyQueued(NotNow):
    """The job has a ticket in that group already, of another process."""

    code = "ALREADY_EXISTS"
    reason = "ALREADY_QUEUED"
    next_step = "Let one process acquire for the job, or pass if_held='wait' to wait for the other one."


class JobQuarantined(NotNow):
    """The job could not be saved or restored, and is kept out until somebody has looked at it."""

    reason = "JOB_QUARANTINED"
    next_step = "Look into the cause, then run `timeslice unquarantine GROUP JOB`."


class JobPinned(NotNow):
    """The job cannot be taken off one of several groups that it asks for at once."""

    reason = "PINNED"
    next_step = "Acquire one group at a time; `timeslice get groups` says why it is pinned."


class GroupDeleting(NotNow):
    reason = "GROUP_DELETING"
    next_step = "Use another group, or make it anew once it is gone."


class DeviceClaimed(NotNow):
    """Another group has the device."""

    reason = "DEVICE_CLAIMED"
    next_step = "Take it out of the other group first: `timeslice get groups -o json` shows who has what."


class JobsParked(NotNow):
    """State of parked jobs would be left behind."""

    reason = "JOBS_PARKED"
    next_step = "End those jobs first (`timeslice get jobs`), or pass --force to give up their state."


class NodeDropped(NotNow):
    """A node that its group went on without may still have the job on its devices."""

    reason = "NODE_DROPPED"
    next_step = (
        "Start the node's agent: it clears the devices first of all, and is taken back once nobody holds the turn. If "
        "the machine is gone for good, pass --force."
    )


class GroupInCharge(NotNow):
    """A coordinator is in charge of these devices."""

    reason = "GROUP_IN_CHARGE"
    next_step = "Ask the coordinator instead of the node."


class SwitchFailed(NotNow):
    reason = "SWITCH_FAILED"
    next_step = "See the node's log for the step that failed."


class AcquireCancelled(NotNow):
    """The acquire was cancelled by another caller."""

    code = "CANCELLED"
    reason = "CANCELLED"


# ---------------------------------------------------------------- the lock


class LockLost(TimesliceError):
    """The turn ended before it was given back: whatever was done since may have been done out of turn.

    It is final for that turn, even if the session lives on. Its work on the accelerators was stopped before
    anyone else was put on; things outside them (files, databases) are fenced only by the token.

    Attributes:
        group: whose turn it was.
        token: its fencing token.
        why: one sentence.
    """

    code = "ABORTED"
    reason = "LOCK_LOST"
    next_step = "Give up or redo the work of this turn, then acquire again."

    def __init__(
        self,
        message: str,
        *,
        group: str = "",
        token: int = 0,
        why: str = "",
        code: str | None = None,
        reason: str | None = None,
        next_step: str | None = None,
        metadata: Mapping[str, str] = _NO_METADATA,
    ) -> None:
        super().__init__(message, code=code, reason=reason, next_step=next_step, metadata=metadata)
        self.group, self.token, self.why = group, token, why


class Evicted(LockLost):
    """An operator took the turn away."""

    reason = "EVICTED"


class TurnLost(LockLost):
    """The holder's ticket is gone."""

    reason = "TURN_LOST"


class NotHolder(TimesliceError):
    """The caller does not hold the turn."""

    code = "FAILED_PRECONDITION"
    reason = "NOT_HOLDER"
    next_step = "Acquire before use; a turn that was given back is over."


class StaleToken(NotHolder):
    """The turn of that token is over; a newer one may be in force."""

    reason = "STALE_TOKEN"


class AcquireTimeout(TimesliceError, TimeoutError):
    """The turn did not come in the time allowed. The place in the queue has been given up."""

    code = "DEADLINE_EXCEEDED"
    reason = "ACQUIRE_TIMEOUT"
    next_step = "Allow more time, or see `timeslice get queue GROUP` for who is ahead."


# ---------------------------------------------------------------- the session and the client


class SessionEnded(TimesliceError):
    """The session is over, and its tickets with it."""

    code = "NOT_FOUND"


class SessionExpired(SessionEnded):
    """Its lease has ended."""

    reason = "SESSION_EXPIRED"


class BadSecret(SessionEnded):
    """It is another session's, or the ledger was restored from before this one."""

    code = "PERMISSION_DENIED"
    reason = "BAD_SECRET"


class SessionTaken(SessionEnded):
    """A newer stream has resumed the session."""

    code = "ABORTED"
    reason = "SESSION_TAKEN"


class ClientClosed(TimesliceError):
    """The client was closed, by `close()` or at the end of the program."""

    code = "CANCELLED"
    reason = "CLIENT_CLOSED"
    next_step = "Open another with `tsclient.connect()`."


class ForkedClient(TimesliceError):
    """A client or turn was used in a child of the process that has it.

    A child may open a client of its own, unless its parent's is in-process: gRPC does not survive a fork.
    """

    code = "FAILED_PRECONDITION"
    reason = "FORKED_CLIENT"
    next_step = "Use the client in the parent, or connect anew in the child (after an in-process client: by spawn)."


class HelperFailed(TimesliceError):
    """The process that keeps the session cannot be started, or ends again and again."""

    code = "UNAVAILABLE"
    reason = "HELPER_FAILED"
    next_step = "Run a Python of the same environment by hand to see why, or pass in_process=True to do without it."


class Unauthenticated(TimesliceError):
    """The coordinators ask for a bearer token, and the call has none that they know."""

    code = "UNAUTHENTICATED"
    reason = "UNAUTHENTICATED"
    next_step = "Put the token into a file and name it in TIMESLICE_TOKEN_FILE."


# ---------------------------------------------------------------- the service


class Unavailable(TimesliceError):
    """The service does not answer at present; nothing is known to be wrong with the request."""

    code = "UNAVAILABLE"
    reason = "UNAVAILABLE"
    next_step = "Try again; if it stays so, see whether the coordinators and etcd are up."


class StoreUnavailable(Unavailable):
    """etcd does not answer in time."""

    reason = "STORE_UNAVAILABLE"


class ReplicaLeaving(Unavailable):
    reason = "REPLICA_LEAVING"


class ReplicaBehind(Unavailable):
    """The replica's view of etcd is not live."""

    reason = "REPLICA_BEHIND"


class DeadlineExceeded(Unavailable):
    """Not done in the time allowed; it may still come to pass."""

    code = "DEADLINE_EXCEEDED"
    reason = "DEADLINE"


class Conflict(Unavailable):
    """Others changed the same thing again and again."""

    code = "ABORTED"
    reason = "CONFLICT"


class InternalError(Unavailable):
    """A fault of the service."""

    code = "INTERNAL"
    reason = "INTERNAL"
    next_step = "See the coordinator's log."


class RecordUnusable(TimesliceError):
    """A record of the ledger that cannot be used; it is never overwritten."""

    code = "DATA_LOSS"


class RecordMalformed(RecordUnusable):
    reason = "RECORD_MALFORMED"
    next_step = "Look at it, then run `timeslice repair`."


class RecordTooNew(RecordUnusable):
    code = "FAILED_PRECONDITION"
    reason = "RECORD_TOO_NEW"
    next_step = "Upgrade the coordinator."


_CLASSES: tuple[type[TimesliceError], ...] = (
    BadName, BadRequest, NodeTwice, DeviceTwice, TooLarge, Unsupported,
    NoSuchGroup, NoSuchJob, NoSuchNode, NoSuchDevice, NoSuchOperation,
    DeviceClaimed, GroupDeleting, JobsParked, NodeDropped, AlreadyQueued, JobQuarantined, JobPinned, GroupInCharge,
    SwitchFailed, AcquireCancelled, StaleToken, NotHolder, Evicted, TurnLost,
    SessionExpired, BadSecret, SessionTaken, Unauthenticated,
    StoreUnavailable, ReplicaLeaving, ReplicaBehind, DeadlineExceeded, Conflict, InternalError,
    RecordMalformed, RecordTooNew,
)  # fmt: skip

BY_REASON: Mapping[str, type[TimesliceError]] = MappingProxyType({each.reason: each for each in _CLASSES})


# What gRPC itself answers, without a reason of ours, when a peer cannot be reached or goes away.
_OUT_OF_REACH = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN"})


def from_reason(
    reason: str, message: str, *, code: str | None = None, metadata: Mapping[str, str] = _NO_METADATA
) -> TimesliceError:
    """The error for a reason that the service gave; of class `TimesliceError` if the reason is unknown here."""
    found = BY_REASON.get(reason)
    if found is not None:
        return found(message, code=code, metadata=metadata)
    if not reason and code in _OUT_OF_REACH:
        return Unavailable(message, code=code, metadata=metadata)
    return TimesliceError(message, code=code, reason=reason or None, metadata=metadata)
