# SPDX-License-Identifier: Apache-2.0
"""Run by `matrix.py` in an environment of its own: the client as it is installed, with whatever it is installed beside.

    python probe.py HOST:PORT GROUP

Every message with every field set goes through the wire form and the JSON form and comes back the same; then one turn
and one refusal at a live replica. Ends with status 0, or with a traceback. For Python 3.10 and any protobuf since 4.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

_DEPTH = 4


def filled(kind: Any, depth: int = _DEPTH) -> Any:
    """A message with a value in every field, down to that depth; of a oneof the last one stays."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        there = getattr(message, field.name)
        nested = field.message_type
        if nested is not None and nested.GetOptions().map_entry:
            there["key"] = "value"
        elif nested is not None:
            if depth:
                part = there.add() if _many(field) else there
                part.CopyFrom(filled(type(part), depth - 1))
        elif _many(field):
            there.append(_value(field))
        else:
            setattr(message, field.name, _value(field))
    return message


def _many(field: Any) -> bool:
    # Newer versions have done away with `label`, older ones have nothing else.
    known = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if known is None else known)


def _value(field: Any) -> object:
    if field.enum_type is not None:
        return field.enum_type.values[-1].number
    return {
        field.CPPTYPE_STRING: b"\x00\xff" if field.type == field.TYPE_BYTES else "text \u00fc",
        field.CPPTYPE_BOOL: True,
        field.CPPTYPE_DOUBLE: 0.5,
        field.CPPTYPE_FLOAT: 0.5,
    }.get(field.cpp_type, 7)


def round_trips() -> int:
    """Every message of the client's packages; how many there are."""
    from google.protobuf import json_format

    from timeslice_proto.v1 import coordinator_pb2, coordinator_pb2_grpc, errors_pb2, nodeagent_pb2, records_pb2

    assert coordinator_pb2_grpc.CoordinatorStub is not None
    count = 0
    for module in (coordinator_pb2, errors_pb2, nodeagent_pb2, records_pb2):
        for name in module.DESCRIPTOR.message_types_by_name:
            kind = getattr(module, name)
            message = filled(kind)
            assert kind.FromString(message.SerializeToString()) == message, name
            assert json_format.Parse(json_format.MessageToJson(message), kind()) == message, name
            count += 1
    return count


def turns(endpoint: str, group: str) -> int:
    """One turn, and a refusal whose reason travels in the details of a status; the turn's token."""
    import tsclient as ts

    with ts.connect(endpoint, job=f"compat-{sys.version_info.minor}", ttl=30) as client:
        turn = client.acquire(group, timeout=60)
        turn.check()
        turn.yield_()
        try:
            client.acquire("nowhere", timeout=60)
        except ts.NoSuchGroup:
            return turn.token
    raise AssertionError("an acquire in a group that is not there was granted")


def main() -> None:
    endpoint, group = sys.argv[1:]
    messages, token = round_trips(), turns(endpoint, group)
    versions = " ".join(f"{name} {version(name)}" for name in ("protobuf", "grpcio", "googleapis-common-protos"))
    print(f"{versions}: {messages} messages, token {token}")


if __name__ == "__main__":
    main()
