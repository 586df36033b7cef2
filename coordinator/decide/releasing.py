# SPDX-License-Identifier: Apache-2.0
"""RELEASING: a switch that was given up is taken back, on every node that may have begun it."""

from __future__ import annotations

from msgspec.structs import replace

from coordinator.decide.decision import Decision, Verdict
from coordinator.decide.drop import held_up
from coordinator.decide.switch import all_say, answers, overtaken, release, unknown
from coordinator.decide.view import GroupView
from ledger.records import Outcome, Phase


def releasing(view: GroupView) -> Verdict:
    assert view.turn is not None
    turn = view.turn.value
    acks = answers(view, turn)
    if highest := overtaken(view, turn, acks):
        why = f"An agent has seen epoch {highest}: release again above it; nobody can say who is on."
        return Verdict(release(view, replace(turn, resident=unknown(turn)), why, reported=highest))
    if all_say(turn, acks, Outcome.RELEASED):
        pinned = turn.pinned and replace(turn.pinned, processes_revision=view.processes_revision(turn.nodes))
        if pinned and view.has_ended(pinned.job, turn.nodes):
            pinned = None  # it went by itself, between the refusal and this release: no change would be seen later
        after = replace(turn, phase=Phase.IDLE, incoming=None, pinned=pinned, kill=False)
        if any(ack.lost for ack in acks.values()):
            after = replace(after, resident=unknown(turn))
            return Verdict(Decision("All nodes have released, but processes were lost: a switch will show.", after))
        return Verdict(Decision("All nodes have released: the resident is as it was.", after))
    missing = next((node for node in turn.nodes if node not in acks and view.node(node).agent is None), None)
    if missing is None:
        slow = next(node for node in turn.nodes if node not in acks)
        note = f"The switch is being released; {slow} has not answered yet."
        return Verdict(note=note, unanswered=len(turn.nodes) - len(acks))
    note = f"Blocked by {missing}: its agent is away, and may have begun the switch that is released."
    return held_up(view, turn, missing, note)
