# SPDX-License-Identifier: Apache-2.0
"""Epochs and tokens: strictly increasing, across deletion, re-creation and restore (protocol rule 10)."""

from __future__ import annotations

from coordinator.decide.view import GroupView
from ledger.records import Phase, Resident, ResidentKind, Turn


def next_epoch(view: GroupView, turn: Turn, reported: int = 0) -> int:
    """The number of a new switch. The store's revision survives the group, so it is the floor."""
    return max(view.revision, turn.epoch + 1, view.highest_epoch() + 1, reported + 1)


def next_token(view: GroupView, turn: Turn) -> int:
    """The fencing token of a new grant."""
    return max(view.revision, turn.token + 1)


def new_turn(view: GroupView) -> Turn:
    """The first turn of a group: UNKNOWN is not "nobody", it takes a switch.

    If a hand has deleted the last one, nodes that the spec does not name may have been in force. They leave by that
    switch: what they last answered does not say that they are clear.
    """
    assert view.spec is not None
    wanted = {one.node for one in view.spec.value.nodes}
    left = {node for node, state in view.nodes.items() if state.directive or state.ack} - wanted
    return Turn(
        phase=Phase.IDLE,
        epoch=max(view.revision, view.highest_epoch()),
        token=view.revision,
        resident=Resident(ResidentKind.UNKNOWN),
        nodes=tuple(sorted(wanted | left)),
        leaving=tuple(sorted(left)),
        generation=view.spec.mod,
    )
