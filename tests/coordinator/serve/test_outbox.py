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


async def test_what_is_told_is_written_before_anything_else_is_done() -> None:
    done: list[str] = []

    async def write(event: Event) -> None:
        done.append(f"written {event.granted.sequence}")

    outbox = Outbox(write)
    running = asyncio.create_task(outbox.run())
    asyncio.get_running_loop().call_soon(done.append, "what was ready before")
    await outbox.tell(Event(granted=pb.Granted(sequence=1)))
    assert done == ["written 1"]
    outbox.close()
    async with asyncio.timeout(30):
        await running


async def test_what_is_told_while_another_event_is_being_written_comes_after_it() -> None:
    taken: list[int] = []
    reads = asyncio.Event()

    async def write(event: Event) -> None:
        await reads.wait()
        taken.append(event.granted.sequence)

    outbox = Outbox(write)
    running = asyncio.create_task(outbox.run())
    telling = [asyncio.create_task(outbox.tell(Event(granted=pb.Granted(sequence=number)))) for number in (1, 2)]
    await asyncio.sleep(0)
    outbox.put(Event(granted=pb.Granted(sequence=3)))
    outbox.close()
    reads.set()
    async with asyncio.timeout(30):
        await asyncio.gather(running, *telling)
    assert taken == [1, 2, 3]


async def test_a_write_that_fails_ends_the_stream_and_not_the_request() -> None:
    async def write(_event: Event) -> None:
        raise asyncio.InvalidStateError("the call is over")

    outbox = Outbox(write)
    running = asyncio.create_task(outbox.run())
    await outbox.tell(Event(granted=pb.Granted(sequence=1)))
    async with asyncio.timeout(30):
        (error,) = await asyncio.gather(running, return_exceptions=True)
    assert isinstance(error, asyncio.InvalidStateError)
