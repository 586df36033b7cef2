# SPDX-License-Identifier: Apache-2.0
"""Planted bugs: the explorer finds each, so a search that finds nothing says something.

Each bug changes one function of the production core or of the transaction that is built from a decision, as a slip of
the hand might. The search must then end in the invariant that the bug breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

import coordinator.apply.transaction
import coordinator.decide.commands
import coordinator.decide.committing
import coordinator.decide.core
import coordinator.decide.held
import coordinator.decide.idle
import coordinator.decide.preparing
import coordinator.decide.releasing
from chaos.explore.search import explore
from chaos.explore.world import Size, World
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
    invariants: frozenset[int]
    faults: Mapping[str, int]
    replicas: int = 1


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


def _failed_commit_leaves_all_as_it_was(right: Any) -> Any:
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


def _tail_first(right: Any) -> Any:
    def head_of(view: Any, turn: Turn, *, beside: str = "") -> Any:
        return right(replace(view, tickets=view.tickets[::-1]), turn, beside=beside)

    return head_of


def _old_token(right: Any) -> Any:
    return lambda view, turn: turn.token


DECIDE = coordinator.decide
BUGS = [
    Planted("the turn's revision is not compared", coordinator.apply.transaction, "_turn", _turn_not_compared, frozenset({10}), {}, 2),
    Planted("tickets' revisions are not compared", coordinator.apply.transaction, "_tickets", _tickets_not_compared, frozenset({10, 14}), {"expire": 1}),
    Planted("granted at the first COMMITTED", DECIDE.committing, "answers", _silence_is_consent, frozenset({3}), {}),
    Planted("commit at the first PREPARED", DECIDE.preparing, "all_say", _any_says, frozenset({8}), {"refuse": 1}),
    Planted("released at the first RELEASED", DECIDE.releasing, "all_say", _any_says, frozenset({2, 9}), {"expire": 1}),
    Planted("lost is taken for clean", DECIDE.held, "lost_turn", _loses_nothing, frozenset({14}), {"expire": 1}),
    Planted("lost in a commit is taken for clean", DECIDE.committing, "_now_resident", _gone_is_clean, frozenset({14}), {"expire": 1}),
    Planted("the holder's ticket is gone and nothing follows", DECIDE.core, "held", _nothing_to_do, frozenset({5}), {"expire": 1}),
    Planted("a release is never ended", DECIDE.core, "releasing", _nothing_to_do, frozenset({16}), {"expire": 1}),
    Planted("a failed commit is taken for a release", DECIDE.committing, "_failed", _failed_commit_leaves_all_as_it_was, frozenset({2, 9, 14}), {"unsaved": 1, "cancel": 1}),
    Planted("the tail of the queue is served first", DECIDE.idle, "head_of", _tail_first, frozenset({6}), {}),
    Planted("a grant without a queue of its own", DECIDE.commands, "acquire", _queue_not_compared, frozenset({6}), {}, 2),
    Planted("a grant has the last one's token", DECIDE.commands, "next_token", _old_token, frozenset({4}), {}),
]  # fmt: skip


@pytest.mark.parametrize("planted", BUGS, ids=lambda planted: planted.name)
def test_the_explorer_finds_a_planted_bug(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted.module, planted.function, planted.bug(getattr(planted.module, planted.function)))
    result = explore(
        World(Size(replicas=planted.replicas, faults=tuple(planted.faults.items()))), max_states=MANY
    )
    assert result.violation is not None, f"not found in {result.states} states"
    number = int(result.violation.what.partition(" ")[2].partition(":")[0])
    assert number in planted.invariants, result.violation
    assert result.violation.trace
