# SPDX-License-Identifier: Apache-2.0
"""Every refusal that the service can give: its reason, its gRPC status and what the reader can do about it.

The one table; docs/errors.md is made from it (``python -m coordinator.errors``), and each answer to a client.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from coordinator.apply.errors import EngineError
from coordinator.decide.commands import Refusal
from ledger.errors import LedgerError
from ledger.etcd.errors import EtcdError, InvalidRequest, LeaseNotFound, TooLarge
from timeslice_proto.v1.errors_pb2 import Error

DOMAIN = "timeslice"
DETAILS_KEY = "grpc-status-details-bin"
_TEXT_MAX = 300
"""Characters of a message, or of one detail: what is sent back must fit into the metadata of a call (8 KiB)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One reason: the status that it is answered with, what it means, and the reader's next step."""

    status: grpc.StatusCode
    meaning: str
    next_step: str


_S = grpc.StatusCode
_LOOK = "See `timeslice get"

KINDS: Mapping[str, Kind] = {
    # the request itself
    "BAD_NAME": Kind(
        _S.INVALID_ARGUMENT,
        "No name for a group, job, node or device.",
        "Use 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning and ending with a letter or digit; a device is named by "
        "its UUID.",
    ),
    "BAD_REQUEST": Kind(
        _S.INVALID_ARGUMENT, "A field is missing, out of range or contradicts another.", "Correct the field named."
    ),
    "NODE_TWICE": Kind(
        _S.INVALID_ARGUMENT, "A group names a node twice.", "Name each node once, with all its devices."
    ),
    "DEVICE_TWICE": Kind(_S.INVALID_ARGUMENT, "A group names a device twice.", "Name each device once."),
    "TOO_LARGE": Kind(_S.RESOURCE_EXHAUSTED, "The request is over the size that the ledger takes.", "Split it."),
    "UNSUPPORTED": Kind(
        _S.UNIMPLEMENTED, "This version does not offer it.", "Upgrade the coordinators, or do without."
    ),
    # what it names
    "NO_SUCH_GROUP": Kind(
        _S.NOT_FOUND, "There is no such group.", f"{_LOOK} groups`; make one with `timeslice group put`."
    ),
    "NO_SUCH_JOB": Kind(_S.NOT_FOUND, "The group knows no such job.", f"{_LOOK} jobs`."),
    "NO_SUCH_NODE": Kind(
        _S.NOT_FOUND, "No such node is known.", f"{_LOOK} nodes`; start an agent there with `timeslice agent`."
    ),
    "NO_SUCH_DEVICE": Kind(
        _S.NOT_FOUND,
        "The node's agent does not report the device.",
        f"{_LOOK} nodes` for the devices that each agent reports.",
    ),
    "NO_SUCH_OPERATION": Kind(
        _S.NOT_FOUND, "The node knows no such operation.", "It may have been begun before the agent's last start."
    ),
    "DEVICE_CLAIMED": Kind(
        _S.FAILED_PRECONDITION,
        "Another group has the device.",
        "Take it out of the other group first: `timeslice get groups -o json` shows who has what.",
    ),
    "GROUP_DELETING": Kind(
        _S.FAILED_PRECONDITION, "The group is being deleted.", "Use another group, or make it anew once it is gone."
    ),
    "JOBS_PARKED": Kind(
        _S.FAILED_PRECONDITION,
        "State of jobs would be left behind.",
        "End those jobs first (`timeslice get jobs`), or pass --force to give up their state.",
    ),
    "NODE_DROPPED": Kind(
        _S.FAILED_PRECONDITION,
        "A node that its group went on without may still have the job on its devices.",
        "Start the node's agent: it clears the devices first of all, and is taken back once nobody holds the turn. If "
        "the machine is gone for good, pass --force.",
    ),
    # sessions
    "SESSION_EXPIRED": Kind(
        _S.NOT_FOUND, "The session's lease has ended: its tickets are gone.", "Open a new session and acquire again."
    ),
    "BAD_SECRET": Kind(
        _S.PERMISSION_DENIED, "The secret is not the session's.", "Use the secret that was given when it was opened."
    ),
    "SESSION_TAKEN": Kind(
        _S.ABORTED, "A newer stream has resumed the session.", "Use one stream for each session."
    ),
    "UNAUTHENTICATED": Kind(
        _S.UNAUTHENTICATED,
        "The service asks for a bearer token, and the call has none that it knows.",
        "Put the token into a file and name it in TIMESLICE_TOKEN_FILE.",
    ),
    # the lock
    "ALREADY_QUEUED": Kind(
        _S.ALREADY_EXISTS,
        "The job has a ticket of the group already, of another process or acquire.",
        "Let one process acquire for the job, or ask to wait for the other one (IF_HELD_WAIT).",
    ),
    "JOB_QUARANTINED": Kind(
        _S.FAILED_PRECONDITION,
        "The job could not be saved or restored, or has processes on a node that was dropped: it is kept out.",
        "Look into the cause, then run `timeslice unquarantine GROUP JOB`.",
    ),
    "STALE_TOKEN": Kind(
        _S.FAILED_PRECONDITION, "The turn of that token is over.", "Do nothing: it was given back or lost before."
    ),
    "NOT_HOLDER": Kind(
        _S.FAILED_PRECONDITION, "The turn belongs to another session.", "Let the session that acquired it yield."
    ),
    "EVICTED": Kind(
        _S.ABORTED, "An operator took the turn or the place away.", "Ask the operator why, then acquire again."
    ),
    "TURN_LOST": Kind(
        _S.ABORTED, "The holder's ticket is gone.", "Give up or redo the work of this turn, then acquire again."
    ),
    "CANCELLED": Kind(_S.CANCELLED, "The acquire was cancelled.", "Acquire again if it was not meant."),
    "PINNED": Kind(
        _S.FAILED_PRECONDITION,
        "The job cannot be taken off one of the groups, so it can have no turns in several at once.",
        "See `timeslice get groups` for why it is pinned; acquire one group at a time, or end its processes there.",
    ),
    # the service
    "STORE_UNAVAILABLE": Kind(
        _S.UNAVAILABLE, "etcd does not answer in time.", "Try again; check that a majority of etcd's members is up."
    ),
    "REPLICA_LEAVING": Kind(_S.UNAVAILABLE, "The replica is shutting down.", "Go on at another replica."),
    "REPLICA_BEHIND": Kind(
        _S.UNAVAILABLE, "The replica's view of etcd is not current.", "Try again, or go on at another replica."
    ),
    "RECORD_MALFORMED": Kind(
        _S.DATA_LOSS,
        "A record of the ledger cannot be read; it is never overwritten.",
        "Look at it with `etcdctl get`, then run `timeslice repair`.",
    ),
    "RECORD_TOO_NEW": Kind(
        _S.FAILED_PRECONDITION, "A record was written by a later version.", "Upgrade this coordinator."
    ),
    "DEADLINE": Kind(
        _S.DEADLINE_EXCEEDED, "It was not done in the time allowed; it may still come to pass.", "Look, then try again."
    ),
    "CONFLICT": Kind(
        _S.ABORTED, "Others changed the same thing again and again.", "Try again."
    ),
    "INTERNAL": Kind(_S.INTERNAL, "A fault of the service.", "See the coordinator's log."),
    # the node
    "GROUP_IN_CHARGE": Kind(
        _S.FAILED_PRECONDITION, "A coordinator is in charge of the devices.", "Ask the coordinator instead of the node."
    ),
    "SWITCH_FAILED": Kind(
        _S.FAILED_PRECONDITION, "A step on the node failed.", "See the node's log for the step that failed."
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client is told of an error.

    Attributes:
        reason: one of `KINDS`.
        message: what happened, a sentence.
        metadata: details by name.
    """

    reason: str
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> grpc.StatusCode:
        return KINDS[self.reason].status

    def trailing(self) -> tuple[tuple[str, bytes], ...]:
        """The trailing metadata by which the reason travels: a google.rpc.Status with a google.rpc.ErrorInfo."""
        info = error_details_pb2.ErrorInfo(
            reason=self.reason,
            domain=DOMAIN,
            metadata={**self.metadata, "next_step": KINDS[self.reason].next_step},
        )
        packed = any_pb2.Any()
        packed.Pack(info)
        status = status_pb2.Status(code=self.status.value[0], message=self.message, details=[packed])
        return ((DETAILS_KEY, status.SerializeToString()),)


def answer_to(error: BaseException) -> Answer | None:
    """What a client is told of ``error``; None for one that nobody foresaw (INTERNAL, and to be logged)."""
    match error:
        case Refusal() | LedgerError() | EngineError() if error.reason in KINDS:
            found = error.metadata if isinstance(error, Refusal) else {}
            metadata = {name: _cut(value) for name, value in found.items()}
            return Answer(error.reason, _cut(str(error.args[0])), metadata)
        case LeaseNotFound():
            return Answer("SESSION_EXPIRED", "The session's lease has ended.")
        case TooLarge():
            return Answer("TOO_LARGE", "The request is over the size that etcd takes.")
        case InvalidRequest():
            return None
        case EtcdError():
            return Answer("STORE_UNAVAILABLE", _cut(f"etcd did not carry it out: {error.cause}."))
        case TimeoutError():
            return Answer("DEADLINE", "It was not done in the time allowed.")
        case _:
            return None


INTERNAL = Answer("INTERNAL", "The coordinator failed in a way that it does not know; its log has the cause.")


def table() -> str:
    """The text of docs/errors.md."""
    rows = [
        f"| {number} | `{reason}` | `{kind.status.name}` | {kind.meaning} | {kind.next_step} |"
        for reason, kind in KINDS.items()
        for number in (Error.Reason.Value(reason),)
    ]
    return _INTRODUCTION + "\n".join(rows) + "\n"


_INTRODUCTION = """\
# Errors

Each refusal is a gRPC status whose details hold a `google.rpc.ErrorInfo`: domain `timeslice`, one of these reasons,
and metadata by name, among it `next_step`. `Refused` and `Lost` in a session's stream carry the same reasons.
Branch on the reason, never on the message. `tsclient` raises one exception class for each.
This page is made by `python -m coordinator.errors`; a test holds it to the code and to `errors.proto`.

| number | reason | status | meaning | next step |
|---|---|---|---|---|
"""


def _cut(message: str) -> str:
    return message if len(message) <= _TEXT_MAX else message[: _TEXT_MAX - 1] + "…"


if __name__ == "__main__":
    sys.stdout.write(table())
