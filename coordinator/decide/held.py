# SPDX-License-Identifier: Apache-2.0
"""HELD: the holder is on, and nothing moves until its ticket goes."""

from __future__ import annotations

from dataclasses import replace

from coordinator.decide.decision import Decision, Remove, Verdict
from coordinator.decide.switch import overtaken, resident_of
from coordinator.decide.view import GroupView
from ledger.records import Ended, Phase, Resident, ResidentKind, TicketState, Turn


def held(view: GroupView) -> Verdict:
    assert view.turn is not None
    turn = view.turn.value
    job = turn.holder.job if turn.holder else ""
    ticket = view.ticket(job)
    holds = ticket is not None and ticket.value.state is TicketState.GRANTED and ticket.value.token == turn.token
    if highest := overtaken(view, turn, {}):
        resident = replace(resident_of(turn), kind=ResidentKind.UNKNOWN)
        after = replace(turn, phase=Phase.IDLE, epoch=highest, holder=None, resident=resident)
        gone = (Remove(job, ticket.create),) if ticket and holds else ()
        return Verdict(Decision(f"An agent has seen epoch {highest}: the grant to {job} does not count.", after, gone))
    if holds:
        return Verdict(note=f"{job} holds the turn, token {turn.token}.")
    why = f"The ticket of {job} is gone: its turn is lost."
    wrong = (Remove(job, ticket.create),) if ticket and ticket.value.state is TicketState.GRANTED else ()
    return Verdict(Decision(why, lost_turn(turn), wrong))


def lost_turn(turn: Turn) -> Turn:
    """IDLE, the holder resident as LOST: it may still be running, and is taken off before anybody else is put on."""
    assert turn.holder is not None
    resident = Resident(ResidentKind.JOB, turn.holder.job, Ended.LOST, turn.holder.process)
    return replace(turn, phase=Phase.IDLE, holder=None, resident=resident)
