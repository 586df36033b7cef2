# SPDX-License-Identifier: Apache-2.0
"""Whose fault a failed restore is: the job's, until a second one in a row fails on the same node (protocol rule 25)."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from coordinator.decide.drop import left_behind
from coordinator.decide.view import GroupView
from ledger.records import Ack, Health, Job, Turn, Unrestored


def nodes_fault(turn: Turn, node: str, job: str) -> bool:
    """Whether the restore of another job was the last one tried on this node, and failed too."""
    return turn.unrestored is not None and turn.unrestored.node == node and turn.unrestored.job != job


def still_doubted(turn: Turn, acks: Mapping[str, Ack]) -> Unrestored | None:
    """What is left of the doubt once all have committed: a node that has restored something is sound."""
    doubted = turn.unrestored
    return None if doubted and doubted.node in acks and acks[doubted.node].restored else doubted


def exonerated(view: GroupView, turn: Turn) -> Mapping[str, Job]:
    """The record of the job that was blamed before, if it is quarantined for that and for nothing else.

    Who is quarantined keeps the reason when a node is dropped: a dropped one where it has processes counts as another.
    """
    doubted = turn.unrestored
    kept = view.jobs.get(doubted.job) if doubted else None
    if doubted is None or kept is None or view.quarantined(doubted.job) != doubted.why:
        return {}
    return {} if left_behind(view, turn, doubted.job) else {doubted.job: replace(kept.value, health=Health.OK, why="")}
