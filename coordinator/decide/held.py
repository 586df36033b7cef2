# SPDX-License-Identifier: Apache-2.0
"""HELD: the holder is on, and nothing moves until its ticket goes."""

from __future__ import annotations

from msgspec.structs import replace

from coordinator.decide.decision import Decision, Remove, Verdict, Wait, WaitKind
from coordinator.decide.switch import overtaken, policy_of, unknown
from coordinator.decide.view import GroupView
from ledger.records import Ended, Phase, Resident, ResidentKind, TicketState, Turn


def held(view: GroupView) -> Verdict:
    assert view.turn is not None
    turn = view.turn.value
    job = turn.holder.job if turn.holder else ""
    ticket = view.ticket(job)
    holds = ticket is not None and ticket.value.state is TicketState.GRANTED and ticket.value.token == turn.token
    if highest := overtaken(view, turn, {}):
        after = lost_turn(turn)
        after = replace(after, epoch=highest, resident=unknown(after))
        gone = (Remove(job, ticket.create),) if ticket and holds else ()
        return Verdict(Decision(f"An agent has seen epoch {highest}: the grant to {job} does not count.", after, gone))
    if ticket and holds:
        note, policy = f"{job} holds the turn, token {turn.token}.", policy_of(view)
        if not policy or not policy.max_hold_ms:
            return Verdict(note=note)
        wait = Wait(WaitKind.HOLD, turn.token, policy.max_hold_ms)
        if wait not in view.passed:
            return Verdict(waits=frozenset({wait}), note=note)
        why = f"{job} has held its turn for as long as the group's policy allows: it is evicted."
        return Verdict(Decision(why, lost_turn(turn), (Remove(job, ticket.create),)))
    why = f"The ticket of {job} is gone: its turn is lost."
    wrong = (Remove(job, ticket.create),) if ticket and ticket.value.state is TicketState.GRANTED else ()
    return Verdict(Decision(why, lost_turn(turn), wrong))


def lost_turn(turn: Turn) -> Turn:
    """IDLE, the holder resident as LOST: it may still be running, and is taken off before anybody else is put on."""
    assert turn.holder is not None
    resident = Resident(ResidentKind.JOB, turn.holder.job, Ended.LOST, turn.holder.process)
    return replace(turn, phase=Phase.IDLE, holder=None, resident=resident)
