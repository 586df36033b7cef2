# SPDX-License-Identifier: Apache-2.0
"""Records as JSON, one message a packet of a SOCK_SEQPACKET pair: whole or not at all, whoever else writes.

Both ends are the same version of this package on the same machine, so there is nothing to negotiate. A record is an
object of one member without a name: its class's name, then its fields in their order. What JSON knows goes as it is, a
number that is infinite too, so that all but the records is done by the parser itself.
"""

from __future__ import annotations

import dataclasses
import json
import mmap
import socket
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

from tsclient import entry, errors, news, orders, progress, settings, want

PACKET_MAX = 1 << 20  # bytes; the kernel's own bound on what is sent is below it

_BETWEEN = b"\n"  # the encoder makes none
_TAG = ""  # no dictionary that is sent has a list under this name

_RECORDS: tuple[type[Any], ...] = (
    news.Grant, news.Opened, news.Trouble, news.Ended, news.Granted, news.Failed, news.GivenBack,
    news.Withdrawn, news.Lost, news.Moved,
    orders.Acquire, orders.GiveUp, orders.GiveBack, orders.Noticed, orders.Keep, orders.Close,
    progress.Queued, progress.Switching, want.Want, entry.Entry, entry.Saved,
    settings.Settings, settings.Tls,
)  # fmt: skip


def pack(message: object, *kept: bytes) -> bytes:
    """One message, and behind it what was packed before. Tuples come out as lists, but within records."""
    return _BETWEEN.join((_encode(message).encode(), *kept))


def unpack(packet: bytes) -> Any:
    """The message that `pack` was given."""
    return _decode(packet.decode())


def split(packet: bytes) -> list[bytes]:
    """A packet's parts: its message, and what was packed before."""
    return packet.split(_BETWEEN)


class Incoming:
    """The packets that come by a socket. `socket.recv` would map and unmap memory for the longest, each time."""

    def __init__(self, ours: socket.socket) -> None:
        self._socket = ours
        self._memory = memoryview(mmap.mmap(-1, PACKET_MAX, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def next(self) -> bytes:
        """The next one; empty at the end. Raises as `socket.recv`."""
        return bytes(self._memory[: self._socket.recv_into(self._memory)])


def _fields(kind: type[Any]) -> Callable[[Any], list[object]]:
    """How a record of this kind becomes a list of its name and fields."""
    name, names = kind.__name__, [field.name for field in dataclasses.fields(kind)]
    match names:
        case []:
            return lambda _: [name]
        case [only]:
            return lambda record: [name, getattr(record, only)]
        case _:
            fields = attrgetter(*names)
            return lambda record: [name, *fields(record)]


def _error(name: str, message: str, fields: dict[str, Any]) -> errors.TimesliceError:
    made: errors.TimesliceError = getattr(errors, name)(message, **fields)
    return made


_FIELDS = {kind: _fields(kind) for kind in _RECORDS}
_MAKERS: dict[str, Callable[..., Any]] = {
    **{kind.__name__: kind for kind in _RECORDS},
    "Stage": entry.Stage.__getitem__,
    "Path": Path,
    "Error": _error,
}


def _plain(value: object) -> object:
    """What JSON does not know."""
    if (fields := _FIELDS.get(type(value))) is not None:
        return {_TAG: fields(value)}
    match value:
        case entry.Stage():
            return {_TAG: ["Stage", value.name]}
        case Path():
            return {_TAG: ["Path", str(value)]}
        case errors.TimesliceError():
            told = {name: getattr(value, name) for name in ("code", "reason", "next_step", "metadata")}
            if isinstance(value, errors.LockLost):
                told |= {"group": value.group, "token": value.token, "why": value.why}
            return {_TAG: ["Error", type(value).__name__, value.message, told]}
        case _:
            raise TypeError(f"{value!r} has no place in a message")


def _rich(value: dict[str, Any]) -> Any:
    said = value.get(_TAG)
    if type(said) is not list:
        return value
    return _MAKERS[said[0]](*[tuple(one) if type(one) is list else one for one in said[1:]])


# Records are trees: nothing is to be looked for that contains itself.
_encode = json.JSONEncoder(separators=(",", ":"), default=_plain, check_circular=False).encode
_decode = json.JSONDecoder(object_hook=_rich).decode
