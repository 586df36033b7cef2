# SPDX-License-Identifier: Apache-2.0
"""Taking a place in a queue for an acquire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from opentelemetry import propagate

from coordinator.apply.engine import Applied, Engine
from coordinator.decide import commands
from coordinator.decide.commands import Refusal
from coordinator.serve.seat import Event, Seat, queued
from coordinator.serve.sessions import WITHIN
from ledger.records import Process, Ticket
from timeslice_proto.v1 import coordinator_pb2

STANDING = "It waits, without a place, until the job's other ticket is gone."


async def take_place(
    engine: Engine,
    seat: Seat,
    request: coordinator_pb2.AcquireRequest,
    process: Process | None,
    gave_up: asyncio.Event,
    tell: Callable[[Event], None],
) -> None:
    """Make the ticket of ``seat``, or find the one that an earlier, equal request made.

    Where the job has another ticket and the request says IF_HELD_WAIT, it waits without a place until that is gone;
    ``gave_up`` ends this wait, and then the seat has no ticket.

    Raises:
        Refusal, LedgerError, EngineError: as `Engine.command`. After an EngineError the ticket may be there: the same
            request finds it, a cancel removes it.
    """
    ticket = Ticket(
        session=seat.session,
        process=process,
        sequence=seat.sequence,
        priority=request.priority,
        groups=(seat.group,),
        traceparent=request.traceparent or _current_traceparent(),
    )
    while not gave_up.is_set():
        try:
            done = await engine.command(
                seat.group, lambda view: commands.acquire(view, seat.job, ticket), within=WITHIN
            )
        except Refusal as refusal:
            if refusal.reason != "ALREADY_QUEUED" or request.if_held != coordinator_pb2.IF_HELD_WAIT:
                raise
        else:
            seat.seated(done.revision if isinstance(done, Applied) else engine.picture.revision)
            return
        tell(queued(seat.sequence, seat.group, 0, STANDING))
        await _key_gone(engine, seat, gave_up)


def _current_traceparent() -> str:
    """Of the call in hand, where it is traced: so that a switch is seen in the trace of who asked for it."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent", "")


async def _key_gone(engine: Engine, seat: Seat, gave_up: asyncio.Event) -> None:
    """Wait until the job has no ticket of the group, or the wait is given up."""
    gone = asyncio.Event()

    def look(groups: frozenset[str]) -> None:
        if seat.group in groups and engine.picture.queue(seat.group).get(seat.job) is None:
            gone.set()

    unsubscribe = engine.subscribe(look)
    look(frozenset({seat.group}))
    waits = [asyncio.ensure_future(gone.wait()), asyncio.ensure_future(gave_up.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        unsubscribe()
        for wait in waits:
            wait.cancel()
