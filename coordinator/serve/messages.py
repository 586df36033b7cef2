# SPDX-License-Identifier: Apache-2.0
"""Records of the ledger to the messages of the service, and back: both have the same fields by the same names."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from google.protobuf.message import Message
from msgspec import Struct
from msgspec.structs import fields

from ledger import records
from timeslice_proto.v1 import records_pb2

M = TypeVar("M", bound=Message)
R = TypeVar("R")


def to_message(record: Any, cls: type[M]) -> M:
    """``record`` as a message of ``cls``, whose name and fields are the record's."""
    return cls(**_fields(record))


def to_record(message: Message, cls: type[R]) -> R:
    """The record of ``cls`` that ``message`` is the form of. A submessage that is not there is None."""
    values: dict[str, Any] = {}
    for name, read in _readers(cls):
        if message.DESCRIPTOR.fields_by_name[name].message_type is not None and not _present(message, name):
            continue
        values[name] = read(getattr(message, name))
    return cls(**values)


def process_of(message: records_pb2.Process) -> records.Process | None:
    """The process, or None where none was named."""
    return to_record(message, records.Process) if message.pid else None


def _present(message: Message, name: str) -> bool:
    field = message.DESCRIPTOR.fields_by_name[name]
    return bool(getattr(message, name)) if field.is_repeated else message.HasField(name)


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: _value(getattr(record, field.name)) for field in fields(record)}


def _value(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case tuple():
            return [_value(one) for one in value]
        case Struct():
            return _fields(value)
        case _:
            return value


_known: dict[type[Any], tuple[tuple[str, Callable[[Any], Any]], ...]] = {}


def _readers(cls: type[Any]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    if cls not in _known:
        hints = typing.get_type_hints(cls)
        _known[cls] = tuple((field.name, _reader(hints[field.name])) for field in fields(cls))
    return _known[cls]


def _reader(hint: Any) -> Callable[[Any], Any]:
    origin = typing.get_origin(hint)
    if origin is tuple:
        read = _reader(typing.get_args(hint)[0])
        return lambda values: tuple(read(one) for one in values)
    if origin is types.UnionType or origin is typing.Union:
        (inner,) = (arg for arg in typing.get_args(hint) if arg is not types.NoneType)
        return _reader(inner)
    if isinstance(hint, type) and issubclass(hint, Enum):
        members = tuple(hint)  # the records' members stand in the order of the messages' numbers, from 0
        return lambda number: members[number]
    if isinstance(hint, type) and issubclass(hint, Struct):
        return lambda message: to_record(message, hint)
    return lambda value: value
