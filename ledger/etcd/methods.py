# SPDX-License-Identifier: Apache-2.0
"""etcd's methods: path, message types, and which of them only read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from ledger.etcd import rpc_pb2 as pb

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


@dataclass(frozen=True, slots=True, eq=False)
class Method(Generic[Q, R]):
    """One method of etcd's API. `reads`: it changes nothing, so that it may always be sent again."""

    name: str
    path: str
    request: type[Q]
    response: type[R]
    reads: bool = False


RANGE = Method("range", "/etcdserverpb.KV/Range", pb.RangeRequest, pb.RangeResponse, reads=True)
PUT = Method("put", "/etcdserverpb.KV/Put", pb.PutRequest, pb.PutResponse)
DELETE = Method("delete", "/etcdserverpb.KV/DeleteRange", pb.DeleteRangeRequest, pb.DeleteRangeResponse)
TXN = Method("txn", "/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse)
COMPACT = Method("compact", "/etcdserverpb.KV/Compact", pb.CompactionRequest, pb.CompactionResponse)
LEASE_GRANT = Method("lease_grant", "/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
LEASE_REVOKE = Method("lease_revoke", "/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
LEASE_TIME_TO_LIVE = Method(
    "lease_time_to_live",
    "/etcdserverpb.Lease/LeaseTimeToLive",
    pb.LeaseTimeToLiveRequest,
    pb.LeaseTimeToLiveResponse,
    reads=True,
)
AUTHENTICATE = Method(
    # A login changes nothing but the list of tokens: one more does no harm.
    "authenticate",
    "/etcdserverpb.Auth/Authenticate",
    pb.AuthenticateRequest,
    pb.AuthenticateResponse,
    reads=True,
)
MEMBER_LIST = Method(
    "member_list", "/etcdserverpb.Cluster/MemberList", pb.MemberListRequest, pb.MemberListResponse, reads=True
)
STATUS = Method("status", "/etcdserverpb.Maintenance/Status", pb.StatusRequest, pb.StatusResponse, reads=True)
ALARM = Method("alarm", "/etcdserverpb.Maintenance/Alarm", pb.AlarmRequest, pb.AlarmResponse)

WATCH = Method("watch", "/etcdserverpb.Watch/Watch", pb.WatchRequest, pb.WatchResponse, reads=True)
KEEPALIVE = Method(
    "keepalive",
    "/etcdserverpb.Lease/LeaseKeepAlive",
    pb.LeaseKeepAliveRequest,
    pb.LeaseKeepAliveResponse,
    reads=True,
)
