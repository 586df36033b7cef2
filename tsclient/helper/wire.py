# SPDX-License-Identifier: Apache-2.0
"""Records as JSON, one message a packet of a SOCK_SEQPACKET pair: whole or not at all, whoever else writes.

Both ends are the same version of this package on the same machine, so there is nothing to negotiate. A record is a
list, its class's name first, then its fields in their order.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from pathlib import Path
from typing import Any

from tsclient import entry, errors, news, orders, progress, settings, want

PACKET_MAX = 1 << 20  # bytes; the kernel's own bound on what is sent is below it

_RECORDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        news.Grant, news.Opened, news.Trouble, news.Ended, news.Granted, news.Failed, news.GivenBack,
        news.Withdrawn, news.Lost, news.Moved,
        orders.Acquire, orders.GiveUp, orders.GiveBack, orders.Noticed, orders.Keep, orders.Close,
        progress.Queued, progress.Switching, want.Want, entry.Entry, entry.Saved,
        settings.Settings, settings.Tls,
    )
}  # fmt: skip


def pack(message: object) -> bytes:
    """One message. Tuples come out as lists, but within records."""
    return json.dumps(_plain(message), separators=(",", ":")).encode()


def unpack(packet: bytes) -> Any:
    """What `pack` was given."""
    return _rich(json.loads(packet))


def _plain(value: object) -> object:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": str(value)}
        case enum.Enum():
            return {"stage": value.name}
        case Path():
            return {"path": str(value)}
        case errors.TimesliceError():
            fields = {name: getattr(value, name) for name in ("code", "reason", "next_step", "metadata")}
            if isinstance(value, errors.LockLost):
                fields |= {"group": value.group, "token": value.token, "why": value.why}
            return {"error": [type(value).__name__, value.message, fields]}
        case list() | tuple():
            return [_plain(one) for one in value]
        case dict():
            return {"dict": [[_plain(key), _plain(one)] for key, one in value.items()]}
        case _ if dataclasses.is_dataclass(value):
            fields_of = dataclasses.fields(value)
            return {"record": [type(value).__name__, *(_plain(getattr(value, field.name)) for field in fields_of)]}
        case _:
            raise TypeError(f"{value!r} has no place in a message")


def _rich(value: Any) -> Any:
    match value:
        case {"float": text}:
            return float(text)
        case {"stage": name}:
            return entry.Stage[name]
        case {"path": text}:
            return Path(text)
        case {"error": [name, message, fields]}:
            return getattr(errors, name)(message, **fields)
        case {"dict": items}:
            return {_rich(key): _rich(one) for key, one in items}
        case {"record": [name, *fields]}:
            return _RECORDS[name](*(_tuple(_rich(one)) for one in fields))
        case list():
            return [_rich(one) for one in value]
        case _:
            return value


def _tuple(value: Any) -> Any:
    """A record's sequences are tuples."""
    return tuple(value) if isinstance(value, list) else value
