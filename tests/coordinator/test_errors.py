# SPDX-License-Identifier: Apache-2.0
"""The one table of errors: it covers the enum, the document is made from it, and it foresees what can be raised."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from coordinator.apply.errors import Conflict, EngineBehind, EngineUnavailable
from coordinator.decide.commands import Refusal
from coordinator.errors import DETAILS_KEY, KINDS, Answer, answer_to, table
from ledger.errors import BadName, RecordMalformed, RecordTooNew
from ledger.etcd.errors import DeadlineExceeded, InvalidRequest, LeaseNotFound, QuotaExceeded, TooLarge
from timeslice_proto.v1.errors_pb2 import Error

DOCUMENT = Path(__file__).parents[2] / "docs" / "errors.md"


def test_the_table_covers_the_enum() -> None:
    assert set(KINDS) == set(Error.Reason.keys()) - {"UNSPECIFIED"}
    assert all(kind.status is not grpc.StatusCode.OK and kind.meaning and kind.next_step for kind in KINDS.values())


def test_the_document_is_the_table() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == table(), "run `python -m coordinator.errors > docs/errors.md`"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Refusal("STALE_TOKEN", "Old."), "STALE_TOKEN"),
        (BadName("job", "J"), "BAD_NAME"),
        (RecordMalformed("Turn", "no JSON"), "RECORD_MALFORMED"),
        (RecordTooNew("Turn", 9), "RECORD_TOO_NEW"),
        (EngineUnavailable("x"), "STORE_UNAVAILABLE"),
        (EngineBehind("x"), "REPLICA_BEHIND"),
        (Conflict("x"), "CONFLICT"),
        (LeaseNotFound("x"), "SESSION_EXPIRED"),
        (TooLarge("x"), "TOO_LARGE"),
        (DeadlineExceeded("x", ambiguous=True), "STORE_UNAVAILABLE"),
        (QuotaExceeded("x"), "STORE_UNAVAILABLE"),
        (TimeoutError(), "DEADLINE"),
    ],
)
def test_what_is_foreseen_has_its_reason(error: Exception, reason: str) -> None:
    answer = answer_to(error)
    assert answer is not None and answer.reason == reason


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), InvalidRequest("x"), Refusal("NO_REASON", "x")])
def test_what_nobody_foresaw_is_not_explained_away(error: Exception) -> None:
    assert answer_to(error) is None


def test_a_status_carries_reason_metadata_and_next_step() -> None:
    answer = Answer("DEVICE_CLAIMED", "Taken.", {"device": "d0"})
    ((key, value),) = answer.trailing()
    status, info = status_pb2.Status.FromString(value), error_details_pb2.ErrorInfo()
    assert key == DETAILS_KEY and status.details[0].Unpack(info)
    assert (status.code, status.message) == (9, "Taken.")
    assert (info.domain, info.reason) == ("timeslice", "DEVICE_CLAIMED")
    assert dict(info.metadata) == {"device": "d0", "next_step": KINDS["DEVICE_CLAIMED"].next_step}


def test_a_long_message_is_cut_so_that_it_fits_into_a_calls_metadata() -> None:
    answer = answer_to(Refusal("JOBS_PARKED", "x" * 100_000, {"group": "g", "jobs": "job, " * 10_000}))
    assert answer is not None and len(answer.trailing()[0][1]) < 2_000
