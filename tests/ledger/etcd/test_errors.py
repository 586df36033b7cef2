# SPDX-License-Identifier: Apache-2.0
"""The table from etcd's words to error classes."""

from __future__ import annotations

import grpc
import pytest

from ledger.etcd import AlarmType, errors
from ledger.etcd.errors import EtcdError, Unavailable, from_status

S = grpc.StatusCode


@pytest.mark.parametrize(
    ("status", "details", "kind"),
    [
        (S.NOT_FOUND, "etcdserver: requested lease not found", errors.LeaseNotFound),
        (S.FAILED_PRECONDITION, "etcdserver: lease already exists", errors.LeaseExists),
        (S.INVALID_ARGUMENT, "etcdserver: key not found", errors.KeyNotFound),
        (S.INVALID_ARGUMENT, "etcdserver: user name is empty", errors.StaleToken),
        (S.INVALID_ARGUMENT, "etcdserver: revision of auth store is old", errors.StaleToken),
        (S.UNAUTHENTICATED, "etcdserver: invalid auth token", errors.StaleToken),
        (S.INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password", errors.AuthFailed),
        (S.INVALID_ARGUMENT, "etcdserver: request is too large", errors.TooLarge),
        (S.RESOURCE_EXHAUSTED, "Received message larger than max (5 vs. 4)", errors.TooLarge),
        (S.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", errors.QuotaExceeded),
        (S.RESOURCE_EXHAUSTED, "etcdserver: too many requests", errors.Overloaded),
        (S.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted", errors.Compacted),
        (S.UNAVAILABLE, "etcdserver: no leader", errors.NoLeader),
        (S.UNKNOWN, "something new", Unavailable),
        (S.DEADLINE_EXCEEDED, "Deadline Exceeded", errors.DeadlineExceeded),
        (S.UNIMPLEMENTED, "unknown method", errors.InvalidRequest),
        (S.FAILED_PRECONDITION, "something new", EtcdError),
    ],
)
def test_each_answer_has_its_class(status: grpc.StatusCode, details: str, kind: type[EtcdError]) -> None:
    error = from_status(status, details, "127.0.0.1:2379")
    assert type(error) is kind
    assert details in error.cause
    assert "127.0.0.1:2379" in str(error)


@pytest.mark.parametrize(
    ("status", "details", "ambiguous"),
    [
        (S.UNAVAILABLE, "failed to connect to all addresses; last error: Connection refused", False),
        (S.UNAVAILABLE, "etcdserver: no leader", False),
        (S.RESOURCE_EXHAUSTED, "etcdserver: too many requests", False),
        (S.UNKNOWN, "raft proposal dropped", False),
        (S.UNAVAILABLE, "Socket closed", True),
        (S.UNAVAILABLE, "etcdserver: request timed out, possibly due to previous leader failure", True),
        (S.UNKNOWN, "context canceled", True),
        (S.INTERNAL, "RST_STREAM", True),
    ],
)
def test_what_may_have_been_applied(status: grpc.StatusCode, details: str, ambiguous: bool) -> None:
    error = from_status(status, details, "x")
    assert isinstance(error, Unavailable)
    assert error.ambiguous is ambiguous


def test_each_class_has_a_code_and_a_next_step() -> None:
    def below(kind: type[EtcdError]) -> set[type[EtcdError]]:
        return {kind}.union(*map(below, kind.__subclasses__()))

    kinds = below(EtcdError)
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert all(kind.next_step for kind in kinds)


async def test_a_full_database(etcd_cluster, connect) -> None:
    client = connect(*etcd_cluster(options=("--quota-backend-bytes", "2000000")).endpoints)

    async def fill() -> None:
        for number in range(500):  # It looks at its size once in 100 ms.
            await client.put(b"%d" % number, b"x" * 500_000)

    with pytest.raises(errors.QuotaExceeded):
        await fill()
    (alarm,) = await client.alarms()
    assert alarm.type is AlarmType.NOSPACE
