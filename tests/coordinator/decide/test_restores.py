# SPDX-License-Identifier: Apache-2.0
"""Rule 25: the second job in a row whose restore fails on the same node shows that the node is at fault."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from coordinator.decide import Decision, GroupView, WaitKind, decide
from ledger.kept import Kept
from ledger.records import Ack, Failure, Fault, Health, Job, Outcome, Phase, ResidentKind, Unrestored
from tests.coordinator.decide.views import COMMITTED, bringing, decision, group, mixed, said, turn_of, waiting


def unrestored(job: str) -> Ack:
    return replace(said(Outcome.FAILED, Fault.INCOMING, Failure.NOT_RESTORED, job), why="bad page")


def bringing_on(job: str, acks: dict[str, Ack], **more: Any) -> GroupView:
    tickets = waiting(job, "z")
    return group(*tickets, phase=Phase.COMMITTING, incoming=bringing(job, tickets), acks=acks, **more)


def first(job: str = "a") -> Decision:
    return decision(bringing_on(job, {"n1": unrestored(job)}))


def with_record(view: GroupView, job: str, record: Job) -> GroupView:
    return replace(view, jobs={**view.jobs, job: Kept(job, record, 8, 8)})


def second(job: str, node: str = "n1", **more: Any) -> Decision:
    """What is decided when this job is the next one, after a's restore had failed on n1."""
    before = first()
    assert before.turn is not None
    more = {"resident": mixed(""), "unrestored": before.turn.unrestored, "attempt": 1, **more}
    return decision(with_record(bringing_on(job, {node: unrestored(job)}, **more), "a", before.health["a"]))


def test_rule_25_the_first_failed_restore_is_the_jobs_fault() -> None:
    found = first()
    assert found.health["a"].health is Health.QUARANTINED
    assert found.turn is not None and found.turn.unrestored == Unrestored("n1", "a", "n1: bad page")


def test_rule_25_the_second_job_in_a_row_blocks_the_node_and_neither_is_quarantined() -> None:
    found = second("b")
    assert found.turn is not None and found.turn.phase is Phase.IDLE and found.turn.blocked is not None
    assert (found.turn.blocked.node, found.turn.blocked.reason) == ("n1", "bad page")
    assert found.health == {"a": Job()}
    assert not found.tickets, "its ticket keeps its place"


def test_rule_25_a_blocked_node_is_tried_again_after_a_while_and_a_third_job_is_not_to_blame_either() -> None:
    blocked = second("b").turn
    assert blocked is not None
    waits = decide(group(*waiting("c"), resident=mixed(""), attempt=blocked.attempt, blocked=blocked.blocked)).waits
    assert {wait.kind for wait in waits} == {WaitKind.BACKOFF}
    again = decision(bringing_on("b", {"n1": unrestored("b")}, unrestored=blocked.unrestored))
    assert again.turn is not None and again.turn.blocked is not None and not again.health


@pytest.mark.parametrize(("job", "node"), [("a", "n1"), ("b", "n2")], ids=["the same job", "another node"])
def test_rule_25_not_a_second_job_in_a_row_on_that_node(job: str, node: str) -> None:
    found = second(job, node)
    assert found.health[job].health is Health.QUARANTINED
    assert found.turn is not None and found.turn.unrestored == Unrestored(node, job, f"{node}: bad page")


def test_rule_25_a_quarantine_for_another_reason_stays() -> None:
    other = Job(health=Health.QUARANTINED, why="by an operator")
    doubted = Unrestored("n1", "a", "n1: bad page")
    view = bringing_on("b", {"n1": unrestored("b")}, resident=mixed(""), unrestored=doubted, attempt=1)
    assert decision(with_record(view, "a", other)).health == {}


def test_rule_25_and_23_nor_is_a_job_sound_that_has_processes_on_a_dropped_node() -> None:
    assert second("b", nodes=("n1",)).health == {"a": Job()}
    assert second("b", nodes=("n1",), recorded=("a",)).health == {}


@pytest.mark.parametrize("restored", [True, False])
def test_rule_25_a_restore_that_succeeds_there_ends_the_doubt(*, restored: bool) -> None:
    doubted = Unrestored("n1", "a", "said")
    acks = {"n1": replace(COMMITTED, restored=restored), "n2": COMMITTED}
    turn = turn_of(bringing_on("b", acks, unrestored=doubted))
    assert turn.phase is Phase.HELD
    assert turn.unrestored == (None if restored else doubted)


def test_rule_25_whatever_else_fails_is_no_failed_restore() -> None:
    failed = said(Outcome.FAILED, Fault.INCOMING, Failure.PROCESS_LOST, "b")
    found = decision(bringing_on("b", {"n1": failed}, unrestored=Unrestored("n1", "a", "said")))
    assert found.health["b"].health is Health.QUARANTINED
    assert found.turn is not None and found.turn.resident is not None
    assert found.turn.resident.kind is ResidentKind.MIXED
