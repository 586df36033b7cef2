# SPDX-License-Identifier: Apache-2.0
"""A thin asyncio client of etcd v3, made for locks: deadlines everywhere, no write sent twice by accident,
watches that lose nothing, leases that know when they are lost."""

from ledger.etcd.batch import GroupCommit
from ledger.etcd.client import EtcdClient
from ledger.etcd.clock import Clock, boottime
from ledger.etcd.lease import OwnedLease
from ledger.etcd.records import (
    Alarm,
    AlarmType,
    DeleteResult,
    Event,
    EventType,
    Header,
    KeyValue,
    LeaseInfo,
    LeaseProof,
    Member,
    MemberStatus,
    OpResult,
    PutResult,
    RangeResult,
    TxnResult,
    WatchBatch,
)
from ledger.etcd.security import Security
from ledger.etcd.watch import Watch

__all__ = [
    "Alarm",
    "AlarmType",
    "Clock",
    "DeleteResult",
    "EtcdClient",
    "Event",
    "EventType",
    "GroupCommit",
    "Header",
    "KeyValue",
    "LeaseInfo",
    "LeaseProof",
    "Member",
    "MemberStatus",
    "OpResult",
    "OwnedLease",
    "PutResult",
    "RangeResult",
    "Security",
    "TxnResult",
    "Watch",
    "WatchBatch",
    "boottime",
]
