# SPDX-License-Identifier: Apache-2.0
"""Records are exactly the canonical JSON form of the messages in records.proto, and bad values are told apart."""

from __future__ import annotations

import json
import types
import typing
from enum import Enum
from random import Random
from typing import Any

import pytest
from google.protobuf import json_format
from msgspec.structs import fields

from ledger import records
from ledger.codec import VERSION, decode, encode
from ledger.errors import RecordMalformed, RecordTooNew
from timeslice_proto.v1 import records_pb2

ALL = [
    cls
    for cls in vars(records).values()
    if isinstance(cls, type) and issubclass(cls, records.Record) and cls is not records.Record
]
ALONE = [cls for cls in ALL if any(field.name == "version" for field in fields(cls))]


def some(hint: Any, random: Random, empty: float) -> Any:
    """A value of a field's type; a default with probability ``empty``."""
    nothing = random.random() < empty
    if hint is int:
        return 0 if nothing else random.choice([1, -1, 2**31, 2**53 + 1, random.getrandbits(62)])
    if hint is bool:
        return not nothing
    if hint is str:
        return "" if nothing else random.choice(["a", "job-1", "é\n\"'", "x" * 300])
    origin = typing.get_origin(hint)
    if origin is tuple:
        inner = typing.get_args(hint)[0]
        return () if nothing else tuple(some(inner, random, empty) for _ in range(random.randint(1, 3)))
    if origin in (types.UnionType, typing.Union):
        (inner,) = (arg for arg in typing.get_args(hint) if arg is not types.NoneType)
        return None if nothing else some(inner, random, empty)
    if issubclass(hint, Enum):
        return next(iter(hint)) if nothing else random.choice(list(hint))
    return record(hint, random, empty)


def record(cls: type[Any], random: Random, empty: float) -> Any:
    hints = typing.get_type_hints(cls)
    values = {field.name: some(hints[field.name], random, empty) for field in fields(cls)}
    if "version" in values:
        values["version"] = VERSION
    return cls(**values)


@pytest.mark.parametrize("cls", ALONE, ids=lambda cls: cls.__name__)
def test_a_record_is_the_canonical_json_of_its_message(cls: type[Any]) -> None:
    message_class = getattr(records_pb2, cls.__name__)
    for seed in range(60):
        one = record(cls, Random(seed), empty=(seed % 4) / 4)
        message = json_format.Parse(encode(one), message_class())
        assert json.loads(encode(one)) == json_format.MessageToDict(message)
        assert decode(cls, encode(one)) == one


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_a_record_has_the_fields_of_its_message(cls: type[Any]) -> None:
    message = getattr(records_pb2, cls.__name__).DESCRIPTOR
    assert [field.name for field in fields(cls)] == [field.name for field in message.fields]


@pytest.mark.parametrize("name", ["Phase", "ResidentKind", "Ended", "TicketState", "Outcome", "Fault", "Failure"])
def test_an_enum_has_the_values_of_its_message(name: str) -> None:
    values = getattr(records_pb2, name).DESCRIPTOR.values
    assert [one.value for one in getattr(records, name)] == [value.name for value in values]


def test_every_message_of_the_ledger_has_its_record() -> None:
    messages = set(records_pb2.DESCRIPTOR.message_types_by_name)
    assert messages == {cls.__name__ for cls in ALL}


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"[]",
        b"nonsense",
        b"\xff\xfe",
        b"{}",
        b'{"version":"0"}',
        b'{"version":"x"}',
        b'{"version":"1","phase":"PHASE_SLEEPING"}',
        b'{"version":"1","epoch":"twelve"}',
        b'{"version":"1","epoch":1.5}',
        b'{"version":"1","paused":"yes"}',
        b'{"version":"1","nodes":"n0"}',
        b'{"version":"1","nodes":[1]}',
        b'{"version":"1","holder":[]}',
        b'{"version":"1","holder":{"process":{"pid":[]}}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_record_is_malformed(value: bytes) -> None:
    with pytest.raises(RecordMalformed) as raised:
        decode(records.Turn, value)
    assert "timeslice repair" in str(raised.value)


def test_a_newer_record_is_told_from_a_malformed_one() -> None:
    with pytest.raises(RecordTooNew):
        decode(records.Turn, b'{"version":"2","phase":"PHASE_OF_THE_FUTURE"}')


def test_unknown_fields_of_the_same_version_are_passed_over() -> None:
    assert decode(records.Turn, b'{"version":"1","epoch":"7","more":true}').epoch == 7
