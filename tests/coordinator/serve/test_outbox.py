# SPDX-License-Identifier: Apache-2.0
"""The events of a stream whose client does not read."""

from __future__ import annotations

import asyncio

from coordinator.serve.outbox import BACKLOG, Outbox
from coordinator.serve.seat import Event
from timeslice_proto.v1 import coordinator_pb2 as pb


async def test_a_client_that_does_not_read_is_spared_progress_and_nothing_else() -> None:
    taken: list[Event] = []
    reads = asyncio.Event()

    async def write(event: Event) -> None:
        await reads.wait()
        taken.append(event)

    outbox = Outbox(write)
    running = asyncio.create_task(outbox.run())
    for number in range(3 * BACKLOG):
        outbox.put(Event(queued=pb.Queued(sequence=1, position=number)))
    outbox.put(Event(granted=pb.Granted(sequence=1)))
    outbox.close()
    reads.set()
    async with asyncio.timeout(30):
        await running
    assert len(taken) == BACKLOG + 1
    assert taken[-1].WhichOneof("event") == "granted"
