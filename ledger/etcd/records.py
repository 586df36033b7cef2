# SPDX-License-Identifier: Apache-2.0
"""What etcd answers, as immutable records.

Not the protobuf messages themselves: those can be changed by whoever is handed one, and one key kept from a
list of ten thousand keeps the memory of all. Copying costs about a microsecond a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from msgspec import Struct

from ledger.etcd import rpc_pb2 as pb


class Header(Struct, frozen=True):
    """Which cluster and member answered, at which revision of the store."""

    cluster_id: int
    member_id: int
    revision: int
    raft_term: int


class KeyValue(Struct, frozen=True):
    """A key as it is at `mod_revision`. `version` counts the puts since it was created; `lease` 0 is none."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


class EventType(Enum):
    PUT = "put"
    DELETE = "delete"


class Event(Struct, frozen=True):
    """One change. Of a deleted key `kv` has only the key and the revision of the deletion.

    `previous` is the key before the change: where the watch asked for it, the key was there and is not
    compacted.
    """

    type: EventType
    kv: KeyValue
    previous: KeyValue | None


class WatchBatch(Struct, frozen=True):
    """Changes of one or more whole revisions, in order; empty in a report of progress.

    Attributes:
        revision: everything the watch covers up to this revision has now been delivered.
    """

    header: Header
    revision: int
    events: tuple[Event, ...]


class RangeResult(Struct, frozen=True):
    """The keys found, in the order of their bytes, all as of one revision.

    Attributes:
        count: how many keys there are in the range, whatever the limit.
        more: the limit left some out.
    """

    header: Header
    kvs: tuple[KeyValue, ...]
    count: int
    more: bool

    @property
    def revision(self) -> int:
        return self.header.revision

    def __iter__(self) -> Iterator[KeyValue]:
        return iter(self.kvs)


class PutResult(Struct, frozen=True):
    header: Header

    @property
    def revision(self) -> int:
        return self.header.revision


class DeleteResult(Struct, frozen=True):
    """`deleted`: how many keys were there."""

    header: Header
    deleted: int

    @property
    def revision(self) -> int:
        return self.header.revision


OpResult = RangeResult | PutResult | DeleteResult


class TxnResult(Struct, frozen=True):
    """`responses` answer the operations of the branch that was taken, in their order."""

    header: Header
    succeeded: bool
    responses: tuple[OpResult, ...]

    @property
    def revision(self) -> int:
        return self.header.revision


class LeaseProof(Struct, frozen=True):
    """etcd's word that a lease lived at `sent_at`: the request that it answered was sent then.

    Attributes:
        ttl: seconds, counted by etcd from a moment not before `sent_at`.
        sent_at: by the client's clock (boot time).
    """

    lease_id: int
    ttl: int
    sent_at: float

    @property
    def deadline(self) -> float:
        """Until then the lease cannot have ended by itself. It may have been revoked: watch a key under it,
        too."""
        return self.sent_at + self.ttl


class LeaseInfo(Struct, frozen=True):
    """Seconds left, seconds granted, and the keys under the lease if they were asked for."""

    lease_id: int
    ttl: int
    granted_ttl: int
    keys: tuple[bytes, ...]


class Member(Struct, frozen=True):
    member_id: int
    name: str
    peer_urls: tuple[str, ...]
    client_urls: tuple[str, ...]
    is_learner: bool


class AlarmType(Enum):
    NOSPACE = "nospace"
    CORRUPT = "corrupt"


class Alarm(Struct, frozen=True):
    member_id: int
    type: AlarmType


class MemberStatus(Struct, frozen=True):
    """One member's view of itself. Sizes in bytes; `leader` is a member id, 0 if it sees none."""

    header: Header
    version: str
    db_size: int
    db_size_in_use: int
    leader: int
    errors: tuple[str, ...]
    is_learner: bool


def header(message: pb.ResponseHeader) -> Header:
    return Header(message.cluster_id, message.member_id, message.revision, message.raft_term)


def key_value(kv: pb.KeyValue) -> KeyValue:
    return KeyValue(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def event(message: pb.Event) -> Event:
    return Event(
        EventType.DELETE if message.type == pb.Event.DELETE else EventType.PUT,
        key_value(message.kv),
        key_value(message.prev_kv) if message.HasField("prev_kv") else None,
    )
