# SPDX-License-Identifier: Apache-2.0
"""IDLE: who is served, at what cost, and what is put in order before."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from coordinator.decide import Grant, NodeState, Refuse, Remove, WaitKind, decide
from coordinator.decide.spec import AT_ONCE
from ledger.kept import Kept
from ledger.records import (
    Blocked,
    Claim,
    DirectiveKind,
    LostPolicy,
    Phase,
    Pinned,
    Policy,
    Resident,
    ResidentKind,
    TicketState,
)
from tests.coordinator.decide.views import (
    EPOCH,
    NOBODY,
    NODES,
    REVISION,
    TOKEN,
    UNKNOWN,
    decision,
    granted,
    group,
    lost,
    mixed,
    on,
    process,
    ticket,
    turn_of,
    waiting,
)


def test_rule_5_clean_resident_at_the_head_is_granted_at_no_cost() -> None:
    found = decision(group(*waiting("a", "b"), resident=on("a")))
    assert found.turn is not None and found.turn.phase is Phase.HELD and found.turn.token == REVISION
    assert found.tickets == (Grant("a", 60, REVISION),)
    assert not found.directives


@pytest.mark.parametrize("resident", [lost("a"), mixed("a"), replace(on("a"), kind=ResidentKind.UNKNOWN)])
def test_rule_5_only_clean_gives_the_free_path(resident: Resident) -> None:
    found = decision(group(*waiting("a"), resident=resident))
    assert found.turn is not None and found.turn.phase is Phase.PREPARING
    assert set(found.directives) == set(NODES)
    assert not any(isinstance(change, Grant) for change in found.tickets)


def test_rule_5_lost_session_is_named_to_the_nodes_with_its_process() -> None:
    for directive in decision(group(*waiting("b"), resident=lost("a"))).directives.values():
        assert (directive.lost_job, directive.lost_process) == ("a", process("a"))
        assert (directive.on, directive.on_process) == ("b", process("b"))
        assert not directive.kill


def test_rule_8_unknown_is_not_nobody_and_takes_a_switch_without_any_ticket() -> None:
    found = decision(group(resident=UNKNOWN))
    assert found.turn is not None and found.turn.phase is Phase.PREPARING
    assert {one.on for one in found.directives.values()} == {""}


def test_rule_8_a_new_group_begins_unknown() -> None:
    view = replace(group(), turn=None)
    turn = turn_of(view)
    assert turn.resident == UNKNOWN and turn.phase is Phase.IDLE and turn.token == REVISION


@pytest.mark.parametrize("resident", [NOBODY, on("a")])
def test_quiet_group_with_nobody_waiting_does_nothing(resident: Resident) -> None:
    assert decide(group(resident=resident)).decision is None


def test_rule_6_every_node_in_force_is_told_in_the_turns_own_transaction() -> None:
    found = decision(group(*waiting("b"), resident=on("a")))
    assert found.turn is not None
    told = {node: (one.kind, one.epoch, one.on) for node, one in found.directives.items()}
    assert told == dict.fromkeys(NODES, (DirectiveKind.PREPARE, found.turn.epoch, "b"))
    assert all(one.devices == (f"gpu-{node}",) for node, one in found.directives.items())


def test_guards_the_ticket_that_a_switch_prepares_for_is_stood_on() -> None:
    assert decision(group(*waiting("b"), resident=on("a"))).stands_on == {"b": 60}


@pytest.mark.parametrize(
    ("highest", "revision", "expected"), [(0, 100, 100), (0, 10, EPOCH + 1), (EPOCH, 10, EPOCH + 1)]
)
def test_rule_10_new_epoch_is_above_store_turn_and_agents(highest: int, revision: int, expected: int) -> None:
    view = replace(group(*waiting("b"), highest=highest), revision=revision)
    assert turn_of(view).epoch == expected


@pytest.mark.parametrize(("revision", "expected"), [(100, 100), (10, TOKEN + 1)])
def test_rule_10_new_token_is_above_store_and_turn(revision: int, expected: int) -> None:
    assert turn_of(replace(group(*waiting("a"), resident=on("a")), revision=revision)).token == expected


def test_rule_10_agent_ahead_of_the_turn_makes_the_resident_unknown() -> None:
    turn = turn_of(group(*waiting("a"), resident=on("a"), highest=EPOCH + 5))
    assert turn.resident == UNKNOWN and turn.epoch == EPOCH + 5 and turn.phase is Phase.IDLE


def test_rule_10_agent_ahead_keeps_the_lost_sessions_process() -> None:
    turn = turn_of(group(resident=lost("a"), highest=EPOCH + 5))
    assert turn.resident == replace(lost("a"), kind=ResidentKind.UNKNOWN)


def test_rule_10_a_grant_without_a_turn_is_removed() -> None:
    assert decision(group(*granted("a"), resident=on("a"))).tickets == (Remove("a", 59),)


def test_rule_11_missing_claims_are_taken_before_anybody_is_served() -> None:
    view = group(*waiting("a"), resident=on("a"))
    bare = {**view.nodes, "n2": replace(view.node("n2"), claims={})}
    assert decision(replace(view, nodes=bare)).claim == (("n2", "gpu-n2"),)


def test_rule_11_nobody_is_served_on_another_groups_device() -> None:
    view = group(*waiting("a"), resident=on("a"))
    taken = {"gpu-n2": Kept("gpu-n2", Claim(group="other"), 4, 4)}
    verdict = decide(replace(view, nodes={**view.nodes, "n2": replace(view.node("n2"), claims=taken)}))
    assert verdict.decision is None and "other" in verdict.note


def test_rule_11_surplus_claims_are_given_up_guarded_by_the_spec() -> None:
    view = group()
    extra = NodeState(claims={"gpu-x": Kept("gpu-x", Claim(group="g"), 4, 4)})
    found = decision(replace(view, nodes={**view.nodes, "x": extra}))
    assert found.unclaim == (("x", "gpu-x"),) and found.spec_mod == 20
    many = {f"gpu-{number}": Kept("", Claim(group="g"), 4, 4) for number in range(AT_ONCE + 1)}
    found = decision(replace(view, nodes={**view.nodes, "x": NodeState(claims=many)}))
    assert len(found.unclaim) == AT_ONCE


def test_rule_14_third_time_mixed_clears_the_devices_and_kills() -> None:
    found = decision(group(*waiting("b"), resident=mixed("a"), attempt=2))
    assert {(one.on, one.kill) for one in found.directives.values()} == {("", True)}


def test_rule_14_mixed_before_that_goes_on_to_the_head_without_killing() -> None:
    found = decision(group(*waiting("b"), resident=mixed("a"), attempt=1))
    assert {(one.on, one.kill) for one in found.directives.values()} == {("b", False)}


def test_rule_29_a_pinned_jobs_ticket_for_several_groups_is_refused() -> None:
    pinned = Pinned("a", "why", processes_revision=10)
    several = ticket("a")
    several = replace(several, value=replace(several.value, groups=("g", "h")))
    found = decision(group(several, *waiting("b"), resident=on("a"), pinned=pinned, recorded=("a",)))
    assert [(one.job, one.reason) for one in found.tickets if isinstance(one, Refuse)] == [("a", "PINNED")]


def test_rule_20_only_the_pinned_jobs_tickets_are_served() -> None:
    pinned = Pinned("a", "why", processes_revision=10)
    verdict = decide(group(*waiting("b"), resident=on("a"), pinned=pinned, recorded=("a",)))
    assert verdict.decision is None and "pinned" in verdict.note
    assert decision(group(*waiting("b", "a"), resident=on("a"), pinned=pinned, recorded=("a",))).tickets == (
        Grant("a", 61, REVISION),
    )


def test_rule_20_a_change_of_its_processes_ends_the_pin() -> None:
    view = group(*waiting("b"), resident=on("a"), pinned=Pinned("a", "why", 10), recorded=("a",), processes_mod=11)
    assert turn_of(view).pinned is None


def test_rule_21_a_lost_holder_is_killed_only_after_its_grace() -> None:
    before = decide(group(resident=lost("a")))
    assert before.decision is None and {one.kind for one in before.waits} == {WaitKind.GRACE}
    after = decision(group(resident=lost("a"), passed=(WaitKind.GRACE,)))
    assert {(one.on, one.kill) for one in after.directives.values()} == {("", True)}


def test_rule_21_park_only_never_kills_a_lost_holder() -> None:
    view = group(resident=lost("a"), passed=(WaitKind.GRACE,), policy=Policy(lost=LostPolicy.PARK_ONLY))
    assert {one.kill for one in decision(view).directives.values()} == {False}


def test_rule_21_another_head_does_not_wait_for_the_grace() -> None:
    assert turn_of(group(*waiting("b"), resident=lost("a"))).phase is Phase.PREPARING


RESISTS = Blocked("resists", "n1", agent_revision=5)
LOST_AND_PINNED = {"resident": lost("a"), "pinned": Pinned("a", "not saved", 10), "recorded": ("a",), "attempt": 1}


def test_rule_20_nobody_is_next_by_a_pin_that_ends_with_the_grace() -> None:
    """Another process of the job waits, behind b: what the lost one left is killed, and no pin is left."""
    later = waiting("b", "a")
    later = (later[0], replace(later[1], value=replace(later[1].value, process=process("a", 2))))
    view = group(*later, blocked=RESISTS, passed=(WaitKind.GRACE,), **LOST_AND_PINNED)  # type: ignore[arg-type]
    found = decision(view)
    assert {(one.on, one.kill) for one in found.directives.values()} == {("b", True)}
    assert found.turn is not None and found.turn.pinned is None


def test_rule_20_a_pinned_job_that_has_come_back_is_not_killed_after_its_grace() -> None:
    """The lost session's own process waits: nothing of it has to go. What hinders it is tried again, with a pause."""
    waits = group(*waiting("b", "a"), blocked=RESISTS, passed=(WaitKind.GRACE,), **LOST_AND_PINNED)  # type: ignore[arg-type]
    verdict = decide(waits)
    assert verdict.decision is None and {one.kind for one in verdict.waits} == {WaitKind.BACKOFF}
    found = decision(group(*waiting("b", "a"), passed=(WaitKind.GRACE,), **LOST_AND_PINNED))  # type: ignore[arg-type]
    assert {(one.on, one.kill) for one in found.directives.values()} == {("a", False)}
    assert found.turn is not None and found.turn.pinned is not None


def test_rule_23_no_prepare_while_an_agent_is_away() -> None:
    verdict = decide(group(*waiting("b"), resident=on("a"), away=("n2",)))
    assert verdict.decision is None and "n2" in verdict.note


def test_rule_23_a_clean_resident_at_the_head_is_served_meanwhile() -> None:
    assert turn_of(group(*waiting("a"), resident=on("a"), away=("n2",))).phase is Phase.HELD


def test_rule_23_a_draining_node_takes_nobody_new_but_serves_its_resident() -> None:
    verdict = decide(group(*waiting("b"), resident=on("a"), draining=("n2",)))
    assert verdict.decision is None and "drained" in verdict.note
    assert turn_of(group(*waiting("a"), resident=on("a"), draining=("n2",))).phase is Phase.HELD
    found = decision(group(*waiting("b"), resident=mixed("a"), draining=("n2",)))
    assert {one.on for one in found.directives.values()} == {""}


@pytest.mark.parametrize(("attempt", "ms"), [(1, 1_000), (2, 2_000), (6, 32_000), (7, 60_000), (60, 60_000)])
def test_rule_24_a_blocked_switch_waits_on_the_readers_clock_and_longer_each_time(attempt: int, ms: int) -> None:
    blocked = Blocked("no memory", "n1", agent_revision=5)
    verdict = decide(group(*waiting("b"), resident=on("a"), blocked=blocked, attempt=attempt))
    assert verdict.decision is None
    assert {(one.kind, one.ms) for one in verdict.waits} == {(WaitKind.BACKOFF, ms)}


def test_failures_a_blocked_switch_is_tried_again_after_the_wait_or_on_the_nodes_event() -> None:
    blocked = Blocked("no memory", "n1", agent_revision=5)
    passed = group(*waiting("b"), resident=on("a"), blocked=blocked, attempt=1, passed=(WaitKind.BACKOFF,))
    assert turn_of(passed).phase is Phase.PREPARING
    event = group(*waiting("b"), resident=on("a"), blocked=replace(blocked, agent_revision=4), attempt=1)
    assert turn_of(event).phase is Phase.PREPARING


def test_rule_23_blocked_serves_a_clean_resident_at_the_head() -> None:
    blocked = Blocked("no memory", "n1", agent_revision=5)
    assert turn_of(group(*waiting("a"), resident=on("a"), blocked=blocked, attempt=3)).phase is Phase.HELD


def test_failures_the_grace_of_a_lost_holder_ends_the_backoff_once() -> None:
    blocked = Blocked("resists", "n1", agent_revision=5)
    over = {"resident": lost("a"), "attempt": 3, "passed": (WaitKind.GRACE,)}
    assert turn_of(group(*waiting("b"), blocked=blocked, **over)).kill  # type: ignore[arg-type]
    again = decide(group(*waiting("b"), blocked=replace(blocked, killing=True), **over))  # type: ignore[arg-type]
    assert again.decision is None


def test_failures_where_a_lost_holder_may_not_be_killed_the_end_of_its_grace_ends_no_backoff() -> None:
    """Else the same PREPARE would be refused again and again, without a pause."""
    blocked = Blocked("resists", "n1", agent_revision=5)
    policy = Policy(lost=LostPolicy.PARK_ONLY)
    view = group(resident=lost("a"), blocked=blocked, attempt=1, passed=(WaitKind.GRACE,), policy=policy)
    verdict = decide(view)
    assert verdict.decision is None and {one.kind for one in verdict.waits} == {WaitKind.BACKOFF}


def test_quarantined_jobs_are_refused_with_their_reason() -> None:
    found = decision(group(*waiting("a", "b"), resident=on("a"), quarantined=("a",)))
    assert found.tickets == (Refuse("a", 60, "JOB_QUARANTINED", "bad"),)


def test_rule_27_paused_serves_nobody() -> None:
    assert decide(group(*waiting("a"), resident=on("a"), paused=True)).decision is None


def test_rule_36_refused_tickets_are_out_of_the_queue() -> None:
    gone = replace(ticket("a"), value=replace(ticket("a").value, state=TicketState.REFUSED))
    assert decide(group(gone, resident=on("a"))).decision is None
