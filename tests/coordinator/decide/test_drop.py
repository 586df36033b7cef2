# SPDX-License-Identifier: Apache-2.0
"""Rule 23, policy `drop`: a group goes on without a node whose agent stays away, and takes it back."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from coordinator.apply.transaction import transaction
from coordinator.decide import GroupView, Refuse, WaitKind, decide
from ledger.etcd.txn import absent, modified_at
from ledger.kept import Kept
from ledger.keys import Keys
from ledger.records import (
    Ack,
    Blocked,
    Claim,
    Directive,
    DirectiveKind,
    Fault,
    Health,
    JobProcesses,
    LostPolicy,
    NodeLostPolicy,
    Outcome,
    Phase,
    Policy,
    Processes,
    ProcessRecord,
    ResidentKind,
    Unrestored,
)
from tests.coordinator.decide.views import (
    COMMITTED,
    DIRECTIVE,
    EPOCH,
    RELEASED,
    UNKNOWN,
    apply,
    bringing,
    decision,
    granted,
    group,
    mixed,
    on,
    process,
    said,
    turn_of,
    waiting,
)

DROP = Policy(node_lost=NodeLostPolicy.DROP, drop_after_ms=5_000)
OVER = (WaitKind.DROP,)
AWAY = {"away": ("n2",), "policy": DROP}


def idle(*jobs: str, **more: Any) -> GroupView:
    return group(*waiting(*jobs), resident=on("a"), **{**AWAY, **more})


def committing(**more: Any) -> GroupView:
    tickets = waiting("b", "c")
    more = {"resident": on("a"), "acks": {"n1": COMMITTED}, **AWAY, **more}
    return group(*tickets, phase=Phase.COMMITTING, incoming=bringing("b", tickets), **more)


def releasing(**more: Any) -> GroupView:
    tickets = waiting("b")
    more = {"resident": on("a"), "acks": {"n1": RELEASED}, **AWAY, **more}
    return group(*tickets, phase=Phase.RELEASING, incoming=bringing("b", tickets), **more)


STUCK = pytest.mark.parametrize("stuck", [lambda **m: idle("b", **m), committing, releasing], ids=["IDLE", "C", "R"])


@STUCK
def test_rule_23_a_node_is_dropped_only_after_its_time_and_only_by_that_policy(stuck: Any) -> None:
    (wait,) = decide(stuck()).waits
    assert (wait.kind, wait.ms, wait.node) == (WaitKind.DROP, 5_000, "n2")
    assert decide(stuck(policy=None)) == decide(stuck(policy=Policy(drop_after_ms=5_000)))
    assert not decide(stuck(policy=None)).waits
    assert turn_of(stuck(passed=OVER)).nodes == ("n1",)


@STUCK
def test_rule_23_a_drop_stands_on_the_agent_being_away(stuck: Any) -> None:
    view = stuck(passed=OVER)
    found = decision(view)
    assert found.absent == ("n2",)
    assert absent(Keys().agent("n2")) in transaction(Keys(), view, found).compares


@STUCK
def test_rule_23_the_dropped_node_is_told_to_clear_its_devices_above_all_that_it_has_seen(stuck: Any) -> None:
    found = decision(stuck(passed=OVER))
    told = found.directives["n2"]
    assert (told.kind, told.on, told.kill, told.devices) == (DirectiveKind.COMMIT, "", True, ("gpu-n2",))
    assert found.turn is not None and told.epoch == found.turn.epoch > EPOCH


def test_rule_23_what_cannot_be_parked_there_is_not_killed_under_park_only() -> None:
    policy = replace(DROP, lost=LostPolicy.PARK_ONLY)
    assert not decision(idle("b", policy=policy, passed=OVER)).directives["n2"].kill


@STUCK
def test_rule_23_jobs_with_processes_there_are_quarantined(stuck: Any) -> None:
    found = decision(stuck(passed=OVER, recorded=("a", "x")))
    assert {job: record.health for job, record in found.health.items()} == dict.fromkeys("ax", Health.QUARANTINED)
    assert "n2" in found.health["a"].why
    again = decision(stuck(passed=OVER, recorded=("a", "x"), quarantined=("a",)))
    assert set(again.health) == {"x"}, "whoever is quarantined keeps the reason"


def test_rule_23_a_commit_begins_anew_on_the_other_nodes() -> None:
    found = decision(committing(passed=OVER))
    assert found.turn is not None
    assert (found.turn.phase, found.turn.resident) == (Phase.PREPARING, mixed("a"))
    assert (found.directives["n1"].kind, found.directives["n1"].on) == (DirectiveKind.PREPARE, "b")
    assert found.stands_on == {"b": 60}


def test_rule_23_an_incoming_job_that_had_processes_there_is_refused_and_the_next_comes() -> None:
    found = decision(committing(passed=OVER, recorded=("b",)))
    assert found.directives["n1"].on == "c"
    (refused,) = found.tickets
    assert isinstance(refused, Refuse) and (refused.job, refused.reason) == ("b", "JOB_QUARANTINED")
    assert found.stands_on == {"b": 60, "c": 61}


def test_rule_23_a_release_ends_without_the_dropped_node_and_nothing_blocks_any_more() -> None:
    blocked = Blocked("its agent is away", "n2")
    view = releasing(passed=OVER, blocked=blocked, attempt=1)
    dropped = decision(view)
    assert dropped.turn is not None and dropped.turn.phase is Phase.RELEASING and dropped.turn.blocked is None
    released = decide(apply(view, replace(dropped, directives={"n2": dropped.directives["n2"]})))
    assert released.decision is not None and released.decision.turn is not None
    assert (released.decision.turn.phase, released.decision.turn.resident) == (Phase.IDLE, on("a"))


def test_rule_23_idle_goes_on_with_the_next_job() -> None:
    view = idle("b", passed=OVER)
    begun = decision(apply(view, decision(view)))
    assert begun.turn is not None and begun.turn.phase is Phase.PREPARING
    assert set(begun.directives) == {"n1"}


def test_rule_23_nobody_is_dropped_while_nothing_has_to_move() -> None:
    assert not decide(idle(passed=OVER)).waits
    assert turn_of(idle("a", passed=OVER)).phase is Phase.HELD
    held = group(*granted("a"), resident=on("a"), phase=Phase.HELD, holder="a", **AWAY)
    assert decide(held).decision is None and not decide(held).waits


def test_rule_23_the_last_node_is_never_dropped() -> None:
    assert not decide(idle("b", nodes=("n2",), spec_nodes=("n2",))).waits


def test_rule_23_a_leaving_node_is_told_to_clear_its_devices_too_and_is_not_forgotten() -> None:
    found = decision(idle("b", leaving=("n2",), spec_nodes=("n1",), passed=OVER))
    assert found.turn is not None and (found.turn.nodes, found.turn.leaving) == (("n1",), ())
    assert not found.forget
    told = found.directives["n2"]
    assert (told.kind, told.on, told.kill, told.devices) == (DirectiveKind.COMMIT, "", True, ("gpu-n2",))


def test_rule_23_the_doubt_about_a_dropped_node_goes_with_it() -> None:
    assert turn_of(idle("b", passed=OVER, unrestored=Unrestored("n2", "x"))).unrestored is None
    doubted = Unrestored("n1", "x")
    assert turn_of(idle("b", passed=OVER, unrestored=doubted)).unrestored == doubted


def dropped(*, answered: bool, answer: Ack = COMMITTED, away: tuple[str, ...] = (), **more: Any) -> GroupView:
    """n2 was dropped, and has answered or not; nobody waits."""
    view = group(**{"resident": on("a"), "nodes": ("n1",), "policy": DROP, "away": away, **more})
    directive = Kept("n2", Directive(epoch=EPOCH, kind=DirectiveKind.COMMIT), 50, DIRECTIVE)
    ack = Kept("n2", answer, 55, 55) if answered else None
    claims = {"gpu-n2": Kept("gpu-n2", Claim(group="g"), 4, 4)}
    state = replace(view.node("n2"), directive=directive, ack=ack, claims=claims)
    if "n2" in away:
        state = replace(state, agent=None)
    elif state.agent is None:
        state = replace(state, agent=view.node("n1").agent)
    return replace(view, nodes={**view.nodes, "n2": state})


def test_rule_23_a_dropped_node_is_in_force_again_once_it_has_obeyed_and_a_switch_shows_who_is_on() -> None:
    turn = turn_of(dropped(answered=True))
    assert (turn.nodes, turn.leaving) == (("n1", "n2"), ())
    assert turn.resident is not None and turn.resident.kind is ResidentKind.UNKNOWN
    assert decide(dropped(answered=False)).decision is None
    assert decide(dropped(answered=True, away=("n2",))).decision is None


UNWANTED: dict[str, Any] = {"spec_nodes": ("n1",)}
"""The spec in force does not name n2."""


@pytest.mark.parametrize("away", [(), ("n2",)])
def test_rule_23_a_dropped_node_that_is_out_of_the_spec_is_not_forgotten_when_that_is_adopted(away: Any) -> None:
    adopted = decision(dropped(answered=False, away=away, **UNWANTED, spec_mod=99))
    assert adopted.turn is not None and adopted.turn.generation == 99 and adopted.turn.nodes == ("n1",)
    assert not adopted.forget


def test_rule_23_and_11_a_dropped_node_that_is_not_wanted_keeps_its_devices_until_it_is_cleared() -> None:
    """Else another group would be served beside what is locked there."""
    assert decide(dropped(answered=False, **UNWANTED)).decision is None
    assert decide(dropped(answered=False, away=("n2",), **UNWANTED)).decision is None
    cleared = dropped(answered=True, **UNWANTED)
    found = decision(cleared)
    assert (found.forget, found.unclaim, found.turn) == (("n2",), (), None)
    keys = Keys()
    assert modified_at(keys.turn("g"), 70) in transaction(keys, cleared, found).compares
    blank = replace(cleared.node("n2"), directive=None, ack=None)
    assert decision(replace(cleared, nodes={**cleared.nodes, "n2": blank})).unclaim == (("n2", "gpu-n2"),)


REFUSED = said(Outcome.REFUSED, fault=Fault.NODE)


def test_rule_23_a_dropped_node_that_is_not_wanted_and_has_refused_leaves_by_a_switch() -> None:
    turn = turn_of(dropped(answered=True, answer=REFUSED, **UNWANTED))
    assert (turn.nodes, turn.leaving, turn.resident) == (("n1", "n2"), ("n2",), UNKNOWN)
    assert decide(dropped(answered=True, answer=REFUSED, away=("n2",), **UNWANTED)).decision is None


def test_rule_23_so_does_one_whose_directive_somebody_has_deleted() -> None:
    view = dropped(answered=True, **UNWANTED)
    untold = replace(view, nodes={**view.nodes, "n2": replace(view.node("n2"), directive=None)})
    assert turn_of(untold).leaving == ("n2",)


@pytest.mark.parametrize("out", [{}, UNWANTED], ids=["wanted", "unwanted"])
def test_rule_23_and_27_deletion_waits_for_a_dropped_node_unless_it_is_forced(out: dict[str, Any]) -> None:
    view = dropped(answered=False, away=("n2",), deleting=True, **out)
    verdict = decide(view)
    assert verdict.decision is None and "n2" in verdict.note and "--force" in verdict.note
    refused = decide(dropped(answered=True, answer=REFUSED, deleting=True, **out))
    assert refused.decision is None
    assert decision(dropped(answered=True, deleting=True, **out)).remove_group
    assert view.spec is not None
    forced = decision(replace(view, spec=replace(view.spec, value=replace(view.spec.value, force=True))))
    assert forced.remove_group and forced.forget == ("n1", "n2")


def test_rule_23_and_27_a_deletion_by_force_waits_for_a_dropped_node_whose_agent_is_about_to_clear_it() -> None:
    """It is back: without what it was told, what its last life had locked would stay locked."""
    view = dropped(answered=False, deleting=True)
    assert view.spec is not None
    forced = replace(view, spec=replace(view.spec, value=replace(view.spec.value, force=True)))
    verdict = decide(forced)
    assert verdict.decision is None and "n2" in verdict.note and "--force" not in verdict.note
    erased = replace(forced.node("n2"), directive=None)
    assert decision(replace(forced, nodes={**forced.nodes, "n2": erased})).remove_group  # it is told nothing any more


def with_state(view: GroupView, *jobs: str) -> GroupView:
    """These jobs have processes on record on n2."""
    records = Processes(jobs=tuple(JobProcesses(job, (ProcessRecord(process(job)),)) for job in jobs))
    return replace(view, nodes={**view.nodes, "n2": replace(view.node("n2"), processes=Kept("n2", records, 10, 10))})


@pytest.mark.parametrize(("answered", "away"), [(False, ("n2",)), (True, ())], ids=["away", "cleared"])
def test_rule_23_and_4_a_spec_without_a_dropped_node_waits_for_what_is_parked_there_unless_forced(
    answered: bool, away: tuple[str, ...]
) -> None:
    """Else it is forgotten once it is cleared, and nobody knows any more what is parked there."""
    view = with_state(dropped(answered=answered, away=away, **UNWANTED, spec_mod=99), "x")
    verdict = decide(view)
    if answered:
        back = turn_of(view)
        assert (back.nodes, back.leaving, back.resident) == (("n1", "n2"), (), UNKNOWN) and back.generation != 99
    else:
        assert verdict.decision is None and "x would leave state behind" in verdict.note
    assert view.spec is not None
    forced = replace(view, spec=replace(view.spec, value=replace(view.spec.value, force=True)))
    assert turn_of(forced).generation == 99


def test_rule_23_and_4_who_leaves_goes_on_leaving_while_another_comes_back_and_a_spec_waits() -> None:
    view = with_state(dropped(answered=True, nodes=("n1", "n3"), leaving=("n3",), **UNWANTED, spec_mod=99), "x")
    assert (turn_of(view).nodes, turn_of(view).leaving) == (("n1", "n2", "n3"), ("n3",))


@pytest.mark.parametrize("job", ["x", "a"], ids=["another", "the resident"])
def test_rule_23_and_27_deletion_waits_for_what_is_parked_on_a_dropped_node(job: str) -> None:
    view = with_state(dropped(answered=True, deleting=True), job)
    verdict = decide(view)
    assert verdict.decision is None and f"{job} would leave state behind" in verdict.note
    assert view.spec is not None
    forced = replace(view, spec=replace(view.spec, value=replace(view.spec.value, force=True)))
    assert decision(forced).remove_group
