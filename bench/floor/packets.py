# SPDX-License-Identifier: Apache-2.0
"""What the floor's job and its helper say to each other: JSON, as long as what the library's two processes say."""

from __future__ import annotations

import json
from typing import Any

from timeslice_proto.v1 import coordinator_pb2

PACKET_MAX = 1 << 20

ORDER_BYTES, NEWS_BYTES = 140, 620
"""Of an acquire's packet, and of one with news, which also has what has changed in the session."""


def memory() -> memoryview:
    """Where packets are received. `socket.recv` would map and unmap as much as the longest has, each time."""
    return memoryview(bytearray(PACKET_MAX))


def read(packet: memoryview) -> Any:
    """What a packet says."""
    return json.loads(bytes(packet))


def order(kind: str, sequence: int, job: str, group: str, token: int) -> bytes:
    """What the job asks for; an acquire is padded."""
    if kind == "yield":
        return json.dumps(["yield", sequence, job, group, token], separators=(",", ":")).encode()
    return json.dumps(["acquire", sequence, job, group, "x" * ORDER_BYTES], separators=(",", ":")).encode()


def answer(event: coordinator_pb2.SessionEvent) -> bytes | None:
    """What the helper tells the job of an event; None: nothing."""
    match event.WhichOneof("event"):
        case "opened":
            said: list[object] = ["opened"]
        case "queued":
            said = ["queued", event.queued.sequence]
        case "granted":
            said = ["granted", event.granted.sequence, event.granted.grants[0].token]
        case "yielded":
            said = ["yielded", event.yielded.sequence, event.yielded.waiters]
        case _:
            return None
    return json.dumps([*said, "x" * NEWS_BYTES], separators=(",", ":")).encode()
