# SPDX-License-Identifier: Apache-2.0
"""Each reason has its class, and an error survives being passed about."""

from __future__ import annotations

import pickle

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from timeslice_proto.v1 import errors_pb2
from tsclient import errors
from tsclient.channel import from_status

REASONS = [value.name for value in errors_pb2.Error.Reason.DESCRIPTOR.values if value.number]


def test_every_reason_has_a_class_of_its_own() -> None:
    assert set(errors.BY_REASON) == set(REASONS)
    assert len(set(errors.BY_REASON.values())) == len(REASONS)


def test_every_status_code_that_a_class_names_is_one() -> None:
    for kind in errors.BY_REASON.values():
        assert kind.code in grpc.StatusCode.__members__, kind


def test_every_class_says_what_it_is_for_or_what_to_do() -> None:
    silent = [kind for kind in errors.BY_REASON.values() if not (kind.__doc__ or kind.next_step)]
    assert silent == []


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_becomes_its_class_and_survives_a_pickle(reason: str) -> None:
    error = errors.from_reason(reason, "It happened.", code="ABORTED", metadata={"group": "g"})
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is errors.BY_REASON[reason]
    assert (copy.message, copy.code, copy.reason, copy.metadata) == ("It happened.", "ABORTED", reason, {"group": "g"})
    assert str(copy).startswith("It happened.")


def test_a_lost_lock_survives_a_pickle() -> None:
    error = errors.Evicted("Lost.", group="g", token=7, why="by hand")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.group, copy.token, copy.why) == ("g", 7, "by hand")


def test_a_reason_of_a_newer_server_is_kept_though_unknown() -> None:
    error = errors.from_reason("MOON_FULL", "It is.", code="FAILED_PRECONDITION")
    assert type(error) is errors.TimesliceError
    assert (error.reason, error.code) == ("MOON_FULL", "FAILED_PRECONDITION")


def _details(domain: str) -> tuple[tuple[str, bytes], ...]:
    packed = any_pb2.Any()
    packed.Pack(error_details_pb2.ErrorInfo(reason="NO_SUCH_GROUP", domain=domain, metadata={"group": "x"}))
    status = status_pb2.Status(code=5, details=[any_pb2.Any(type_url="t/other"), packed])
    return (("grpc-status-details-bin", status.SerializeToString()),)


def test_a_status_with_details_is_the_error_they_name() -> None:
    error = from_status(grpc.StatusCode.NOT_FOUND, "No group x.", _details("timeslice"), "h:1")
    assert type(error) is errors.NoSuchGroup
    assert (error.message, error.metadata) == ("No group x.", {"group": "x"})


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.Unavailable),
        (grpc.StatusCode.UNIMPLEMENTED, errors.TimesliceError),
    ],
)
def test_a_status_without_our_details_says_who_gave_it(code: grpc.StatusCode, kind: type) -> None:
    error = from_status(code, "refused", _details("example.com"), "h:1")
    assert type(error) is kind
    assert error.code == code.name
    assert "h:1" in error.message
