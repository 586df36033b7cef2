# SPDX-License-Identifier: Apache-2.0
"""Records to JSON and back: exactly the canonical JSON form of the messages in ``records.proto``.

A record is coded on every step of a hand-off, and protobuf's own JSON coder is pure Python: so the records are structs
of msgspec, which does the work. A test holds the two forms equal.

The form: field names in lowerCamelCase, int64 as strings, enums by name, and nothing said about a field that has its
default.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

import msgspec
from msgspec.structs import fields, replace

from ledger.errors import RecordMalformed, RecordTooNew

R = TypeVar("R")

VERSION = 1
"""The newest form of the records that this program reads and writes."""

_Encode = Callable[[Any], dict[str, Any]]
_Decode = Callable[[Any], Any]


def _plain(value: Any) -> str:
    """What msgspec does not know: a string of a class of its own, as the explorer has for names."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"no JSON form for {value!r}")


_dump = msgspec.json.Encoder(enc_hook=_plain).encode
_load = msgspec.json.Decoder().decode


class _Form(msgspec.Struct, frozen=True):
    """One type's values in JSON: expressions of ``v``.

    Attributes:
        said: what is written for a value.
        heard: the value that was written. Raises ValueError, TypeError.
        zero: what proto3 takes an absent field to be; the records' own defaults must agree (a test says so).
    """

    said: str
    heard: str
    zero: Any


def encode(record: Any) -> bytes:
    """The JSON form of ``record``, as it is kept in etcd. Records that stand alone begin with their version."""
    return _dump(_coder(type(record))[0](record))


def decode(cls: type[R], value: bytes) -> R:
    """Read one record.

    Raises:
        RecordMalformed: the value is not the JSON form of such a record, or has no version.
        RecordTooNew: its version is above `VERSION`.
    """
    name = cls.__name__
    try:
        data = _load(value)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
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
        return typing.cast(R, _coder(cls)[1](data))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise RecordMalformed(name, str(error) or type(error).__name__) from error


_known: dict[type[Any], tuple[_Encode, _Decode]] = {}


def _coder(cls: type[Any]) -> tuple[_Encode, _Decode]:
    """How a record of this class becomes JSON's values, and back.

    Both are written out and compiled once, field by field, as `dataclasses` does with ``__init__``: a record is coded
    a few times in a turn, each time by code that the processor has forgotten since, so that calls count.
    """
    known = _known.get(cls)
    if known is not None:
        return known
    hints = typing.get_type_hints(cls)
    names: dict[str, Any] = {"cls": cls, "bad": _bad}
    said, heard = [], []
    for field in fields(cls):
        form = _form(hints[field.name], names)
        name = field.encode_name
        zero = _named(names, form.zero)
        differs = "True" if field.name == "version" else f"v is not {zero}" if _is_one(form.zero) else "v"
        said.append(f"    v = record.{field.name}\n    if {differs}: out[{name!r}] = {form.said}\n")
        heard.append(f"        {zero} if (v := get({name!r})) is None else {form.heard},\n")
    source = (
        f"def encode(record):\n    out = {{}}\n{''.join(said)}    return out\n"
        f"def decode(data):\n    if type(data) is not dict: bad(data, 'record of class {cls.__name__}')\n"
        f"    get = data.get\n    return cls(\n{''.join(heard)}    )\n"
    )
    exec(compile(source, f"<the JSON form of {cls.__name__}>", "exec"), names)
    return _known.setdefault(cls, (names["encode"], names["decode"]))


def _form(hint: Any, names: dict[str, Any]) -> _Form:
    """Of one type. What its expressions refer to is put into ``names``."""
    if hint is bool:
        return _Form("v", "v if v is True or v is False else bad(v, 'boolean')", False)
    if hint is int:
        return _Form("str(v)", "int(v) if type(v) is str or type(v) is int else bad(v, 'integer')", 0)
    if hint is str:
        return _Form("v", "v if type(v) is str else bad(v, 'string')", "")
    origin = typing.get_origin(hint)
    if origin is tuple:
        one = _form(typing.get_args(hint)[0], names)
        return _Form(
            f"[{one.said} for v in v]", f"tuple([{one.heard} for v in v]) if type(v) is list else bad(v, 'list')", ()
        )
    if origin is types.UnionType or origin is typing.Union:
        (inner,) = (arg for arg in typing.get_args(hint) if arg is not types.NoneType)
        return replace(_form(inner, names), zero=None)
    if isinstance(hint, type) and issubclass(hint, Enum):
        members = _named(names, {member.value: member for member in hint})
        # By the enum itself where there is none, for the error that it raises.
        return _Form("v._value_", f"{members}.get(v) or {_named(names, hint)}(v)", next(iter(hint)))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        encode_one, decode_one = _coder(hint)
        return _Form(f"{_named(names, encode_one)}(v)", f"{_named(names, decode_one)}(v)", None)
    raise TypeError(f"no JSON form for {hint!r}")


def _is_one(zero: Any) -> bool:
    """Whether nothing but this very value is false, so to speak: None, or the first member of an enum."""
    return zero is None or isinstance(zero, Enum)


def _named(names: dict[str, Any], value: Any) -> str:
    """A name in ``names`` for this value."""
    name = f"_{len(names)}"
    names[name] = value
    return name


def _bad(value: Any, wanted: str) -> typing.NoReturn:
    raise ValueError(f"{value!r} is no {wanted}")
