# SPDX-License-Identifier: Apache-2.0
"""The coordinator's plain calls, for whoever needs a session without the client's help."""

from __future__ import annotations

import grpc

from timeslice_proto.v1 import coordinator_pb2, coordinator_pb2_grpc
from tsclient.channel import from_status
from tsclient.identity import this_process

_SECONDS = 30.0


def plain_session(stub: coordinator_pb2_grpc.CoordinatorStub, ttl: float = 60.0) -> coordinator_pb2.Opened:
    """A session of this process that nobody beats for: it lives ``ttl`` seconds. Raises grpc.RpcError."""
    request = coordinator_pb2.OpenRequest(process=this_process(), ttl_ms=int(ttl * 1000))
    return stub.OpenSession(request, timeout=_SECONDS)


def reason_of(error: grpc.RpcError) -> str:
    """The reason of a call's refusal (`errors.proto`); UNSPECIFIED if it carries none of ours."""
    trailing = [(one.key, one.value) for one in error.trailing_metadata() or ()]
    return from_status(error.code(), error.details(), trailing, "the coordinator").reason
