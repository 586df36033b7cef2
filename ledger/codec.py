# SPDX-License-Identifier: Apache-2.0
"""Records to JSON and back: exactly the canonical JSON form of the messages in ``records.proto``.

The records are plain frozen dataclasses and the C implementation of `json` does the work, since a record is coded on
every step of a hand-off and protobuf's own JSON coder is pure Python. A test holds the two forms equal.

The form: field names in lowerCamelCase, int64 as strings, enums by name, and nothing said about a field that has its
default.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from ledger.errors import RecordMalformed, RecordTooNew

R = TypeVar("R")

VERSION = 1
"""The newest form of the records that this program reads and writes."""

_Encode = Callable[[Any], Any]
_Decode = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    json_name: str
    default: Any
    encode: _Encode
    decode: _Decode


def encode(record: Any) -> bytes:
    """The JSON form of ``record``, as it is kept in etcd. Records that stand alone begin with their version."""
    return json.dumps(_to_json(record), separators=(",", ":"), ensure_ascii=False).encode()


def decode(cls: type[R], value: bytes) -> R:
    """Read one record.

    Raises:
        RecordMalformed: the value is not the JSON form of such a record, or has no version.
        RecordTooNew: its version is above `VERSION`.
    """
    name = cls.__name__
    try:
        data = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RecordMalformed(name, f"it is no JSON ({error})") from error
    if not isinstance(data, dict):
        raise RecordMalformed(name, "it is no JSON object")
    try:
        version = int(data.get("version", 0))
    except (TypeError, ValueError) as error:
        raise RecordMalformed(name, "its version is no number") from error
    if version > VERSION:
        raise RecordTooNew(name, version)
    if version < 1:
        raise RecordMalformed(name, "it has no version")
    try:
        return typing.cast(R, _from_json(cls, data))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise RecordMalformed(name, str(error) or type(error).__name__) from error


def _to_json(record: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in _fields(type(record)):
        value = getattr(record, field.name)
        if value is None or (value == field.default and field.name != "version"):
            continue
        out[field.json_name] = field.encode(value)
    return out


def _from_json(cls: type[Any], data: Any) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"a {cls.__name__} in it is no JSON object")
    values: dict[str, Any] = {}
    for field in _fields(cls):
        raw = data.get(field.json_name)
        if raw is not None:
            values[field.name] = field.decode(raw)
    return cls(**values)


def _fields(cls: type[Any]) -> tuple[_Field, ...]:
    known = _known.get(cls)
    if known is not None:
        return known
    hints = typing.get_type_hints(cls)
    out = []
    for field in dataclasses.fields(cls):
        code = _coder(hints[field.name])
        head, *rest = field.name.split("_")
        json_name = head + "".join(part.capitalize() for part in rest)
        zero = _zero(hints[field.name])
        out.append(_Field(field.name, json_name, zero, *code))
    return _known.setdefault(cls, tuple(out))


_known: dict[type[Any], tuple[_Field, ...]] = {}


def _zero(hint: Any) -> Any:
    """What proto3 takes an absent field to be: the records' own defaults must agree (a test says so)."""
    if hint is int:
        return 0
    if hint is bool:
        return False
    if hint is str:
        return ""
    if typing.get_origin(hint) is tuple:
        return ()
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    return None


def _coder(hint: Any) -> tuple[_Encode, _Decode]:
    if hint is bool:
        return _same, _bool
    if hint is int:
        return str, _int
    if hint is str:
        return _same, _str
    origin = typing.get_origin(hint)
    if origin is tuple:
        encode_one, decode_one = _coder(typing.get_args(hint)[0])

        def decode_all(raw: Any) -> tuple[Any, ...]:
            if not isinstance(raw, list):
                raise ValueError("a list in it is none")
            return tuple(decode_one(one) for one in raw)

        return lambda values: [encode_one(one) for one in values], decode_all
    if origin is types.UnionType or origin is typing.Union:
        (inner,) = (arg for arg in typing.get_args(hint) if arg is not types.NoneType)
        return _coder(inner)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value: value.value, hint
    if dataclasses.is_dataclass(hint):
        return _to_json, lambda raw: _from_json(typing.cast(type[Any], hint), raw)
    raise TypeError(f"no JSON form for {hint!r}")


def _same(value: Any) -> Any:
    return value


def _bool(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise ValueError(f"{raw!r} is no boolean")
    return raw


def _int(raw: Any) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise ValueError(f"{raw!r} is no integer")
    return int(raw)


def _str(raw: Any) -> str:
    if not isinstance(raw, str):
        raise ValueError(f"{raw!r} is no string")
    return raw
