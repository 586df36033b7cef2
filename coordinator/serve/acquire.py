# SPDX-License-Identifier: Apache-2.0
"""Taking a place in the queue for an acquire, or in several queues at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from opentelemetry import propagate, trace

from coordinator.apply.engine import Applied, Engine
from coordinator.decide import Decision, GroupView, commands
from coordinator.decide.commands import Refusal
from coordinator.decide.decision import Create
from coordinator.picture import Picture
from coordinator.serve.party import Party
from coordinator.serve.registry import session_taken
from coordinator.serve.seat import Event, queued
from coordinator.serve.sessions import WITHIN
from ledger.etcd.txn import Compare, modified_at
from ledger.failpoint import hit
from ledger.records import Process, Ticket, TicketState
from timeslice_proto.v1 import coordinator_pb2

STANDING = "It waits, without a place, until the job's other ticket is gone."


async def take_place(
    engine: Engine,
    party: Party,
    request: coordinator_pb2.AcquireRequest,
    process: Process | None,
    gave_up: asyncio.Event,
    tell: Callable[[Event], None],
    *,
    served_since: int = 0,
) -> None:
    """Make the tickets of ``party``, all in one transaction, or find those that an earlier, equal request made.

    ``served_since`` is the mod revision of the session's key: once another replica serves it, none is made any more.
    The client has repeated there what it still wants; a replica that stood still would bring back what it has long
    given back. 0: whoever asks is asked elsewhere only after this call has been cancelled.

    Where the job has another ticket and the request says IF_HELD_WAIT, it waits without a place until that is gone;
    ``gave_up`` ends this wait, and then there is no ticket.

    Raises:
        Refusal: also SESSION_TAKEN, where a newer stream serves the session.
        LedgerError, EngineError: as `Engine.command`. After an EngineError the ticket may be there: the same
            request finds it, a cancel removes it.
    """
    ticket = Ticket(
        session=party.session,
        process=process,
        sequence=party.sequence,
        priority=request.priority,
        groups=party.groups,
        traceparent=request.traceparent,
    )
    guards = (modified_at(engine.keys.session(party.session), served_since),) if served_since else ()

    def ask(view: GroupView) -> Decision | commands.Nothing:
        if served_since:
            _require_served(engine.picture, party.session, served_since)
        return commands.acquire(view, party.job, ticket)

    while not gave_up.is_set():
        hit("replica.ticket.asked")
        try:
            await _write(engine, party, ask, guards)
        except Refusal as refusal:
            if refusal.reason == "ALREADY_QUEUED" and await _cleared(engine, party):
                continue
            if refusal.reason != "ALREADY_QUEUED" or request.if_held != coordinator_pb2.IF_HELD_WAIT:
                raise
        else:
            hit("replica.ticket.written")
            return
        tell(queued(party.sequence, party.groups[0], 0, STANDING))
        await _keys_gone(engine, party, gave_up)


async def _write(
    engine: Engine,
    party: Party,
    ask: Callable[[GroupView], Decision | commands.Nothing],
    guards: Sequence[Compare],
) -> None:
    """Make the tickets, and tell ``party`` what has come of it. Raises as `Engine.command`."""
    if len(party.groups) > 1:
        revision = await engine.command_all(party.groups, ask, within=WITHIN, guards=guards)
        party.seated(revision or engine.picture.revision)
        return
    (group,) = party.groups
    done = await engine.command(group, ask, within=WITHIN, guards=guards)
    party.seated(done.revision if isinstance(done, Applied) else engine.picture.revision)
    for change in done.decision.tickets if isinstance(done, Applied) else ():
        if isinstance(change, Create) and change.ticket.state is TicketState.GRANTED:
            party.granted(group, change.ticket.token)


def _require_served(picture: Picture, session: str, since: int) -> None:
    """Raises Refusal if the session has ended, or its key has been written since that revision."""
    kept = picture.session(session)
    if kept is not None and kept.mod > since:
        raise session_taken()
    if kept is None and picture.revision >= since and picture.session_error(session) is None:
        raise Refusal("SESSION_EXPIRED", "The session has ended: its lease is gone.", {"session": session})


async def _cleared(engine: Engine, party: Party) -> bool:
    """Whether what stood in the way were refused tickets of the same session's earlier acquires, which are now removed.

    Its client has heard of the refusal, or it would not ask again; else the next beat removes them.
    """
    cleared = False
    for group in party.groups:
        kept = engine.picture.queue(group).get(party.job)
        if kept is None or kept.value.state is not TicketState.REFUSED:
            continue
        session, sequence = kept.value.session, kept.value.sequence
        if session == party.session and sequence < party.sequence:
            await engine.command(group, partial(commands.cancel, job=party.job, session=session, sequence=sequence))
            cleared = True
    return cleared


def current_traceparent() -> str:
    """Of the call in hand, where it is traced: so that a switch is seen in the trace of who asked for it."""
    if trace.get_current_span() is trace.INVALID_SPAN:
        return ""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent", "")


async def _keys_gone(engine: Engine, party: Party, gave_up: asyncio.Event) -> None:
    """Wait until the job has no ticket of any of the groups, or the wait is given up."""
    gone = asyncio.Event()

    def look(groups: frozenset[str]) -> None:
        if not groups.isdisjoint(party.groups) and all(
            engine.picture.queue(group).get(party.job) is None for group in party.groups
        ):
            gone.set()

    unsubscribe = engine.subscribe(look)
    look(frozenset(party.groups))
    waits = [asyncio.ensure_future(gone.wait()), asyncio.ensure_future(gave_up.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        unsubscribe()
        for wait in waits:
            wait.cancel()
