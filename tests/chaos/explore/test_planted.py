# SPDX-License-Identifier: Apache-2.0
"""Planted bugs: the explorer finds each, so a search that finds nothing says something.

Each bug changes one function of the production core or of the transaction that is built from a decision, as a slip of
the hand might. The search must then end in the invariant that the bug breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

import chaos.explore.bridge
import coordinator.apply.transaction
import coordinator.decide.commands
import coordinator.decide.committing
import coordinator.decide.core
import coordinator.decide.drop
import coordinator.decide.held
import coordinator.decide.idle
import coordinator.decide.preparing
import coordinator.decide.releasing
from chaos.explore.search import explore
from chaos.explore.size import Size
from coordinator.decide import Decision, Verdict
from ledger.etcd.txn import Compare
from ledger.records import Ack, Ended, Outcome, Phase, Turn

MANY = 250_000
"""States within which every bug is found."""


@dataclass(frozen=True)
class Planted:
    """A bug: where it is, what it makes of the function there, the faults that it takes, and what it breaks."""

    name: str
    module: Any
    function: str
    bug: Callable[[Any], Any]
    invariants: set[int]
    faults: Mapping[str, int] = field(default_factory=dict)
    replicas: int = 1
    lasting: bool = False
    nodes: int = 1


def _any_says(_right: Any) -> Any:
    def all_say(turn: Turn, acks: Mapping[str, Ack], outcome: Outcome) -> bool:
        return any(ack.outcome is outcome for ack in acks.values())

    return all_say


def _silence_is_consent(right: Any) -> Any:
    """Once one node has committed, all have."""

    def answers(view: Any, turn: Turn) -> Mapping[str, Ack]:
        found: Mapping[str, Ack] = right(view, turn)
        committed = [ack for ack in found.values() if ack.outcome is Outcome.COMMITTED]
        return {**dict.fromkeys(turn.nodes, committed[0]), **found} if committed else found

    return answers


def _nothing_to_do(_right: Any) -> Any:
    return lambda view: Verdict()


def _turn_not_compared(right: Any) -> Any:
    def turn(keys: Any, view: Any, decision: Decision, compares: list[Compare], ops: list[Any]) -> None:
        right(keys, view, decision, [], ops)

    return turn


def _tickets_not_compared(right: Any) -> Any:
    def tickets(keys: Any, view: Any, decision: Decision, compares: list[Compare], ops: list[Any]) -> None:
        right(keys, view, decision, [], ops)

    return tickets


def _loses_nothing(right: Any) -> Any:
    """A lost turn is taken for one that was given back."""

    def lost_turn(turn: Turn) -> Turn:
        after: Turn = right(turn)
        assert after.resident is not None
        return replace(after, resident=replace(after.resident, ended=Ended.CLEAN, lost_process=None))

    return lost_turn


def _gone_is_clean(right: Any) -> Any:
    """Whoever's ticket went during a commit is taken for one that cancelled."""

    def now_resident(turn: Turn, incoming: Any) -> Any:
        return right(turn, replace(incoming, cancelled=True))

    return now_resident


def _as_it_was(right: Any) -> Any:
    def failed(view: Any, turn: Turn, node: str, ack: Ack) -> Decision:
        found: Decision = right(view, turn, node, ack)
        assert found.turn is not None
        idle = replace(found.turn, phase=Phase.IDLE, resident=turn.resident, incoming=None)
        return replace(found, turn=idle, directives={})

    return failed


def _queue_not_compared(right: Any) -> Any:
    def acquire(view: Any, job: str, ticket: Any) -> Any:
        found = right(view, job, ticket)
        return replace(found, queue_empty=False) if isinstance(found, Decision) else found

    return acquire


def _tail_first(_right: Any) -> Any:
    def head_of(view: Any, turn: Turn, *, beside: str = "") -> Any:
        return next((one for one in reversed(list(view.waiting())) if one.name != beside), None)

    return head_of


def _by_name(_right: Any) -> Any:
    def head_of(view: Any, turn: Turn, *, beside: str = "") -> Any:
        waiting = sorted((one for one in view.waiting() if one.name != beside), key=lambda one: one.name)
        return next(iter(waiting), None)

    return head_of


def _pin_sees_a_change(right: Any) -> Any:
    """The record that the switch itself wrote ends the pin, so that the switch is tried again."""

    def finished(view: Any, turn: Turn, acks: Mapping[str, Ack]) -> Decision:
        found: Decision = right(view, turn, acks)
        assert found.turn is not None
        pinned = found.turn.pinned and replace(found.turn.pinned, processes_revision=0)
        return replace(found, turn=replace(found.turn, pinned=pinned))

    return finished


def _dropped_for_nothing(_right: Any) -> Any:
    """Whoever has processes on a dropped node is served on the others as if it had none."""
    return lambda view, job, why: {}


def _drop_not_compared(right: Any) -> Any:
    """A node is dropped although its agent has come back in between."""

    def drop(view: Any, turn: Turn, node: str) -> Decision:
        return replace(right(view, turn, node), absent=())

    return drop


def _nothing_to_repair(right: Any) -> Any:
    """A restored turn is believed."""

    def restored(view: Any) -> Decision:
        found: Decision = right(view)
        assert found.turn is not None
        return replace(found, turn=replace(found.turn, resident=view.turn.value.resident))

    return restored


def _old_token(right: Any) -> Any:
    return lambda view, turn: turn.token


DECIDE, TRANSACTION = coordinator.decide, coordinator.apply.transaction
EXPIRE, UNSAVED, RESTORED = {"expire": 1}, {"unsaved": 1, "cancel": 1}, {"restored": 1}
DROP = {"restart": 1, "away": 1, "drop": 1}
BUGS = [
    Planted("the turn's revision is not compared", TRANSACTION, "_turn", _turn_not_compared, {10}, {}, 2),
    Planted("tickets' revisions are not compared", TRANSACTION, "_tickets", _tickets_not_compared, {10, 14}, EXPIRE),
    Planted("granted at the first COMMITTED", DECIDE.committing, "answers", _silence_is_consent, {3}, nodes=2),
    Planted("commit at the first PREPARED", DECIDE.preparing, "all_say", _any_says, {8}, {"refuse": 1}, nodes=2),
    Planted("released at the first RELEASED", DECIDE.releasing, "all_say", _any_says, {2, 9}, EXPIRE, nodes=2),
    Planted("lost is taken for clean", DECIDE.held, "lost_turn", _loses_nothing, {14}, EXPIRE),
    Planted("lost in a commit is taken for clean", DECIDE.committing, "_now_resident", _gone_is_clean, {14}, EXPIRE),
    Planted("the holder's ticket is gone and nothing follows", DECIDE.core, "held", _nothing_to_do, {5}, EXPIRE),
    Planted("a release is never ended", DECIDE.core, "releasing", _nothing_to_do, {16}, EXPIRE),
    Planted("a failed commit is a release", DECIDE.committing, "_failed", _as_it_was, {2, 9, 14}, UNSAVED),
    Planted("the tail of the queue is served first", DECIDE.idle, "head_of", _tail_first, {6}),
    Planted("the queue is served by name", DECIDE.idle, "head_of", _by_name, {6}),
    Planted("a grant into a queue that is not empty", DECIDE.commands, "acquire", _queue_not_compared, {6}, {}, 2),
    Planted("a grant has the last one's token", DECIDE.commands, "next_token", _old_token, {4}),
    Planted(
        "a pin ends by itself", DECIDE.committing, "_finished", _pin_sees_a_change, {15}, {"unsaved": 1}, lasting=True
    ),
    Planted("a drop quarantines nobody", DECIDE.drop, "quarantine", _dropped_for_nothing, {8}, DROP, nodes=2),
    Planted("a drop does not compare the agent", DECIDE.drop, "_drop", _drop_not_compared, {10}, DROP, nodes=2),
    Planted("a restored turn is believed", chaos.explore.bridge, "restored", _nothing_to_repair, {2, 14}, RESTORED),
]


@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.name)
def test_the_explorer_finds_a_planted_bug(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted.module, planted.function, planted.bug(getattr(planted.module, planted.function)))
    size = Size(
        nodes=planted.nodes,
        replicas=planted.replicas,
        faults=tuple(planted.faults.items()),
        lasting=planted.lasting,
        prompt=planted.nodes > 1,
    )
    result = explore(size, max_states=MANY, workers=planted.nodes)
    assert result.violation is not None, f"not found in {result.states} states"
    number = int(result.violation.what.partition(" ")[2].partition(":")[0])
    assert number in planted.invariants, result.violation
    assert result.violation.trace
