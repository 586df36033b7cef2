# SPDX-License-Identifier: Apache-2.0
"""PREPARING, COMMITTING, RELEASING and HELD: what each answer, and each absence of one, leads to."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from coordinator.decide import Grant, GroupView, Refuse, Remove, WaitKind, decide
from ledger.kept import Kept
from ledger.records import (
    Ack,
    Directive,
    DirectiveKind,
    Ended,
    Failure,
    Fault,
    Health,
    Incoming,
    LostPolicy,
    Outcome,
    Phase,
    Pinned,
    Policy,
    Resident,
    ResidentKind,
)
from tests.coordinator.decide.views import (
    COMMITTED,
    DIRECTIVE,
    EPOCH,
    NODES,
    PREPARED,
    RELEASED,
    REVISION,
    TOKEN,
    UNKNOWN,
    apply,
    bringing,
    decision,
    granted,
    group,
    lost,
    mixed,
    on,
    process,
    said,
    ticket,
    turn_of,
    waiting,
)

BOTH_PREPARED = dict.fromkeys(NODES, PREPARED)
BOTH_COMMITTED = dict.fromkeys(NODES, COMMITTED)
STALE = replace(said(Outcome.STALE), highest_epoch=EPOCH + 7)


def switching(
    phase: Phase, acks: dict[str, Ack], *jobs: str, resident: Resident | None = None, **more: object
) -> GroupView:
    """A switch from a to b."""
    tickets = waiting(*(jobs or ("b",)))
    given: dict[str, Any] = {"incoming": bringing("b", tickets), **more}
    return group(*tickets, resident=resident or on("a"), phase=phase, acks=acks, **given)


def preparing(acks: dict[str, Ack], *jobs: str, resident: Resident | None = None, **more: Any) -> GroupView:
    return switching(Phase.PREPARING, acks, *jobs, resident=resident, **more)


def committing(acks: dict[str, Ack], *jobs: str, resident: Resident | None = None, **more: Any) -> GroupView:
    return switching(Phase.COMMITTING, acks, *jobs, resident=resident, **more)


# ------------------------------------------------------------------------------------------------ PREPARING


def test_a_node_that_a_new_spec_does_not_name_leaves_by_a_switch_if_somebody_deletes_the_turn_meanwhile() -> None:
    """It may have committed the holder: it is not clear for having answered."""
    view = committing(BOTH_COMMITTED, spec_nodes=("n1",), spec_mod=30)
    turn = turn_of(replace(view, turn=None))
    assert (turn.nodes, turn.leaving, turn.generation) == (NODES, ("n2",), 30)


@pytest.mark.parametrize("kind", DirectiveKind)
def test_what_is_being_prepared_when_somebody_deletes_the_turn_is_released_by_the_next(kind: DirectiveKind) -> None:
    """Nobody else would: the group may be paused, or be waiting to be deleted."""
    view = preparing({"n1": PREPARED})
    told = {
        name: replace(node, directive=Kept(name, Directive(epoch=EPOCH, kind=kind), 50, DIRECTIVE))
        for name, node in view.nodes.items()
    }
    found, releases = decision(replace(view, turn=None, nodes=told)), kind is DirectiveKind.PREPARE
    assert found.turn is not None and found.turn.resident == UNKNOWN and found.turn.epoch > EPOCH
    assert found.turn.phase is (Phase.RELEASING if releases else Phase.IDLE)
    assert {(one.kind, one.keep) for one in found.directives.values()} == (
        {(DirectiveKind.RELEASE, True)} if releases else set()
    )


def test_rule_3_commit_only_once_all_nodes_are_prepared() -> None:
    assert decide(preparing({"n1": PREPARED})).decision is None
    found = decision(preparing(BOTH_PREPARED))
    assert found.turn is not None and found.turn.phase is Phase.COMMITTING and found.turn.epoch == EPOCH
    assert {(node, one.kind, one.on) for node, one in found.directives.items()} == {
        (node, DirectiveKind.COMMIT, "b") for node in NODES
    }


def test_rule_7_an_answer_to_an_older_directive_does_not_count() -> None:
    old = replace(PREPARED, directive_revision=49)
    assert decide(preparing({"n1": PREPARED, "n2": old})).decision is None


@pytest.mark.parametrize(
    "change", [{"paused": True}, {"deleting": True}, {"incoming": Incoming("b", 12, process("b"))}]
)
def test_rule_19_and_27_incoming_ticket_gone_pause_and_delete_release_a_prepare(change: dict[str, Any]) -> None:
    found = decision(preparing(BOTH_PREPARED, **change))
    assert found.turn is not None and found.turn.phase is Phase.RELEASING
    assert {one.kind for one in found.directives.values()} == {DirectiveKind.RELEASE}


@pytest.mark.parametrize(
    ("resident", "on_", "keep"),
    [(on("a"), "a", False), (lost("a"), "", True), (mixed("a"), "", True), (UNKNOWN, "", True)],
)
def test_rule_3_release_names_the_clean_resident_or_keeps(resident: Resident, on_: str, *, keep: bool) -> None:
    found = decision(preparing({}, resident=resident, incoming=Incoming("b", 12)))
    assert {(one.on, one.keep, one.kill) for one in found.directives.values()} == {(on_, keep, False)}


def test_failures_prepare_outgoing_job_is_pinned() -> None:
    turn = turn_of(preparing({"n1": PREPARED, "n2": said(Outcome.REFUSED, Fault.OUTGOING, job="a")}))
    assert turn.phase is Phase.RELEASING and turn.pinned is not None and turn.pinned.job == "a"


def test_failures_prepare_outgoing_of_no_job_pins_nobody() -> None:
    refused = {"n2": said(Outcome.REFUSED, Fault.OUTGOING)}
    turn = turn_of(preparing(refused, resident=Resident(ResidentKind.NOBODY)))
    assert turn.phase is Phase.RELEASING and turn.pinned is None
    assert turn.blocked is not None and turn.blocked.node == "n2"


def test_failures_prepare_outgoing_job_that_is_lost_is_not_pinned_but_killed_after_its_grace() -> None:
    refused = {"n2": said(Outcome.REFUSED, Fault.OUTGOING, job="a")}
    turn = turn_of(preparing(refused, resident=lost("a")))
    assert turn.phase is Phase.RELEASING and turn.pinned is None
    idle = group(*waiting("b"), resident=lost("a"), blocked=turn.blocked, attempt=1, passed=(WaitKind.GRACE,))
    assert turn_of(idle).kill


def test_rule_14_prepare_refused_while_mixed_is_tried_again_and_nobody_is_pinned() -> None:
    view = preparing({"n2": said(Outcome.REFUSED, Fault.OUTGOING, job="a")}, resident=mixed("a"), attempt=1)
    turn = turn_of(view)
    assert turn.pinned is None and turn.blocked is not None and turn.attempt == 2


def test_failures_prepare_incoming_job_is_quarantined_and_refused() -> None:
    found = decision(preparing({"n1": said(Outcome.REFUSED, Fault.INCOMING, job="b")}))
    assert found.turn is not None and found.turn.phase is Phase.RELEASING
    assert isinstance(found.tickets[0], Refuse) and found.tickets[0].reason == "JOB_QUARANTINED"
    assert found.health["b"].health is Health.QUARANTINED


def test_rule_14_a_pinned_job_that_cannot_be_put_back_is_not_put_back_for_ever() -> None:
    view = preparing(
        {"n1": said(Outcome.REFUSED, Fault.INCOMING, job="a")},
        resident=mixed("a"),
        incoming=Incoming("a"),
        pinned=Pinned("a", "not saved"),
        attempt=1,
    )
    turn = turn_of(view)
    assert turn.pinned is None and turn.attempt == 2


def test_failures_prepare_node_is_blocked_with_its_event() -> None:
    turn = turn_of(preparing({"n2": said(Outcome.REFUSED, Fault.NODE)}))
    assert turn.phase is Phase.RELEASING and turn.attempt == 1
    assert turn.blocked is not None and (turn.blocked.node, turn.blocked.agent_revision) == ("n2", 5)


def test_failures_prepare_agent_gone_is_blocked() -> None:
    turn = turn_of(preparing(BOTH_PREPARED, away=("n2",)))
    assert turn.phase is Phase.RELEASING and turn.blocked is not None and turn.blocked.node == "n2"


def test_failures_prepare_time_allowed_is_measured_by_who_waits() -> None:
    assert {one.kind for one in decide(preparing({"n1": PREPARED})).waits} == {WaitKind.ANSWER}
    turn = turn_of(preparing({"n1": PREPARED}, passed=(WaitKind.ANSWER,)))
    assert turn.phase is Phase.RELEASING and turn.blocked is not None and turn.blocked.node == "n2"


def test_how_many_answers_are_awaited_is_said() -> None:
    """Whoever asks this again at each of many answers asks for nothing."""
    assert [decide(preparing(acks)).unanswered for acks in ({}, {"n1": PREPARED}, BOTH_PREPARED)] == [2, 1, 0]
    assert [decide(committing(acks)).unanswered for acks in ({}, {"n1": COMMITTED}, BOTH_COMMITTED)] == [2, 1, 0]
    releases = [group(phase=Phase.RELEASING, acks=acks) for acks in ({}, {"n2": RELEASED})]
    assert [decide(one).unanswered for one in releases] == [2, 1]
    assert decide(committing({"n1": COMMITTED}, away=("n2",))).unanswered == 0, "an agent's return is news by itself"


def test_rule_10_stale_in_prepare_begins_anew_above_it_with_nobody_known() -> None:
    found = decision(replace(preparing({"n1": STALE}), revision=10))
    assert found.turn is not None and found.turn.phase is Phase.PREPARING
    assert found.turn.epoch == EPOCH + 8 and found.turn.resident == UNKNOWN
    assert {one.epoch for one in found.directives.values()} == {EPOCH + 8}


def test_rule_10_stale_with_the_incoming_ticket_gone_takes_the_next() -> None:
    view = preparing({"n1": STALE}, "c", incoming=Incoming("b", 12))
    found = decision(view)
    assert {one.on for one in found.directives.values()} == {"c"} and found.stands_on == {"c": 60}


# ------------------------------------------------------------------------------------------------ COMMITTING


def test_invariant_3_a_grant_follows_committed_of_all_nodes() -> None:
    assert decide(committing({"n1": COMMITTED})).decision is None
    found = decision(committing(BOTH_COMMITTED))
    assert found.turn is not None and found.turn.phase is Phase.HELD and found.turn.resident == on("b")
    assert found.tickets == (Grant("b", 60, REVISION),) and found.stands_on == {"b": 60}


def test_rule_9_the_grant_names_what_was_lost_and_whether_anything_was_restored() -> None:
    gone = process("b", 9)
    acks = {"n1": replace(COMMITTED, restored=True), "n2": replace(COMMITTED, lost=(gone,))}
    assert decision(committing(acks)).tickets == (Grant("b", 60, REVISION, restored=True, lost=(gone,)),)


def test_rule_19_incoming_ticket_gone_in_committing_is_finished_first() -> None:
    view = committing({"n1": COMMITTED}, "c", incoming=Incoming("b", 12, process("b")))
    assert decide(view).decision is None


def test_rule_19_incoming_ticket_gone_in_committing_is_lost() -> None:
    view = committing(BOTH_COMMITTED, "c", incoming=Incoming("b", 12, process("b")))
    found = decision(view)
    assert found.turn is not None and found.turn.phase is Phase.IDLE and found.turn.resident == lost("b")
    assert not found.tickets
    assert found.turn.token > TOKEN, "its grace is told from that of an earlier loss by the token"


def test_rule_19_cancelled_in_committing_is_clean() -> None:
    view = committing(BOTH_COMMITTED, "c", incoming=Incoming("b", 12, process("b"), cancelled=True))
    assert turn_of(view).resident == on("b")


def test_rule_19_a_ticket_made_anew_is_not_the_incoming_one() -> None:
    assert turn_of(committing(BOTH_COMMITTED, "b", incoming=Incoming("b", 12, process("b")))).resident == lost("b")


def test_rule_23_committing_waits_while_an_agent_is_away() -> None:
    verdict = decide(committing({"n1": COMMITTED}, away=("n2",)))
    assert verdict.decision is None and "n2" in verdict.note


@pytest.mark.parametrize("change", [{"paused": True}, {"deleting": True}])
def test_rule_27_committing_finishes_first(change: dict[str, Any]) -> None:
    assert decide(committing({"n1": COMMITTED}, **change)).decision is None


def test_rule_27_a_pause_does_not_take_the_grant_from_a_finished_switch() -> None:
    """Else its ticket would wait beside a residency that is noted as clean, and could be lost unseen."""
    assert turn_of(committing(BOTH_COMMITTED, paused=True)).phase is Phase.HELD


def test_rule_27_a_finished_switch_of_a_group_that_is_being_deleted_refuses_its_ticket() -> None:
    found = decision(committing(BOTH_COMMITTED, deleting=True))
    assert found.turn is not None and found.turn.phase is Phase.IDLE and found.turn.resident == on("b")
    assert isinstance(found.tickets[0], Refuse) and found.tickets[0].reason == "GROUP_DELETING"
    assert found.stands_on == {"b": 60}


def test_rule_4_leaving_nodes_get_nobody_and_are_forgotten_once_committed() -> None:
    told = decision(group(*waiting("b"), resident=UNKNOWN, leaving=("n2",))).directives
    assert (told["n1"].on, told["n2"].on) == ("b", "")
    found = decision(committing(BOTH_COMMITTED, leaving=("n2",)))
    assert found.turn is not None and found.turn.nodes == ("n1",) and found.forget == ("n2",)


NOT_SAVED = said(Outcome.FAILED, failure=Failure.NOT_SAVED, job="a")


def test_failures_commit_out_not_saved_is_put_back_and_pinned() -> None:
    found = decision(committing({"n1": COMMITTED, "n2": NOT_SAVED}))
    assert found.turn is not None and found.turn.resident == mixed("a")
    assert found.turn.phase is Phase.PREPARING and found.turn.epoch > EPOCH
    assert found.turn.pinned is not None and found.turn.pinned.job == "a"
    assert {one.on for one in found.directives.values()} == {"a"}


def test_rule_14_attempts_before_the_commit_do_not_count_as_failed_commits() -> None:
    found = decision(committing({"n2": NOT_SAVED}, attempt=5))
    assert {(one.on, one.kill) for one in found.directives.values()} == {("a", False)}


def test_rule_14_what_cannot_be_saved_again_and_again_is_killed() -> None:
    found = decision(committing({"n2": NOT_SAVED}, resident=mixed("a"), attempt=1, pinned=Pinned("a", "not saved")))
    assert {(one.on, one.kill) for one in found.directives.values()} == {("", True)}
    assert found.turn is not None and found.turn.pinned is None


@pytest.mark.parametrize(("resident", "ends"), [(mixed("a"), on("a")), (mixed("a", Ended.LOST), lost("a"))])
def test_rule_14_an_old_resident_that_is_put_back_keeps_how_it_ended(resident: Resident, ends: Resident) -> None:
    view = committing(BOTH_COMMITTED, "b", resident=resident, incoming=Incoming("a"), pinned=Pinned("a", "not saved"))
    assert turn_of(view).resident == ends


def test_rule_5_who_is_put_back_from_an_unknown_residency_is_not_taken_for_clean() -> None:
    turn = turn_of(committing(BOTH_COMMITTED, "b", resident=mixed(""), incoming=Incoming("a")))
    assert turn.resident == Resident(ResidentKind.UNKNOWN, "a")


def test_rule_20_the_pin_of_a_failed_commit_waits_for_a_later_change() -> None:
    pinned = Pinned("a", "not saved")
    view = committing(BOTH_COMMITTED, "b", resident=mixed("a"), incoming=Incoming("a"), pinned=pinned, recorded=("a",))
    turn = turn_of(view)
    assert turn.pinned is not None and turn.pinned.processes_revision == 10


def test_failures_commit_process_lost_quarantines_its_job_and_goes_on() -> None:
    found = decision(committing({"n1": said(Outcome.FAILED, failure=Failure.PROCESS_LOST, job="a")}))
    assert found.health["a"].health is Health.QUARANTINED and "lost" in found.health["a"].why
    assert {one.on for one in found.directives.values()} == {"b"}


def test_failures_commit_who_is_quarantined_by_it_is_not_next_although_it_waits() -> None:
    """The ticket that the switch was begun for is gone by then."""
    lost_process = {"n1": said(Outcome.FAILED, failure=Failure.PROCESS_LOST, job="a")}
    found = decision(committing(lost_process, "a", "c", incoming=Incoming("b", 50)))
    assert found.health["a"].health is Health.QUARANTINED
    assert {one.on for one in found.directives.values()} == {"c"}


@pytest.mark.parametrize(("policy", "on_then"), [(None, "b"), (Policy(lost=LostPolicy.PARK_ONLY), "a")])
def test_rule_20_nobody_is_next_by_a_pin_that_a_failed_commit_ends(policy: Policy | None, on_then: str) -> None:
    """What the lost session left cannot be saved: it may be killed now, and then the first that waits is next."""
    found = decision(
        committing(
            {"n2": NOT_SAVED},
            "b",
            "a",
            resident=lost("a"),
            incoming=bringing("a", waiting("b", "a")),
            pinned=Pinned("a", "not saved"),
            policy=policy,
        )
    )
    assert {(one.on, one.kill) for one in found.directives.values()} == {(on_then, policy is None)}
    assert found.turn is not None and (found.turn.pinned is None) is (policy is None)


def test_failures_commit_in_not_restored_goes_to_the_next_with_the_job_at_fault() -> None:
    found = decision(committing({"n1": said(Outcome.FAILED, failure=Failure.NOT_RESTORED, job="b")}, "b", "c"))
    assert {one.on for one in found.directives.values()} == {"c"}
    assert found.health["b"].health is Health.QUARANTINED
    assert found.stands_on == {"b": 60, "c": 61}
    assert found.turn is not None and found.turn.resident == mixed("a")


def test_failures_commit_in_not_restored_goes_to_nobody_where_none_waits() -> None:
    found = decision(committing({"n1": said(Outcome.FAILED, failure=Failure.NOT_RESTORED, job="b")}))
    assert {one.on for one in found.directives.values()} == {""}


def test_rule_14_a_failed_commit_never_prepares_for_a_ticket_that_is_gone() -> None:
    failed = {"n1": said(Outcome.REFUSED, Fault.NODE)}
    found = decision(committing(failed, "c", incoming=Incoming("b", 12)))
    assert found.stands_on == {"c": 60} and {one.on for one in found.directives.values()} == {"c"}


def test_rule_14_a_node_that_refuses_every_commit_makes_it_wait_and_not_spin() -> None:
    failed = {"n1": said(Outcome.REFUSED, Fault.NODE)}
    assert turn_of(committing(failed)).phase is Phase.PREPARING
    turn = turn_of(committing(failed, resident=mixed("a"), attempt=1))
    assert turn.phase is Phase.IDLE and turn.blocked is not None and turn.resident == mixed("a")
    after = decide(group(*waiting("b"), resident=mixed("a"), blocked=turn.blocked, attempt=turn.attempt))
    assert after.decision is None and {one.kind for one in after.waits} == {WaitKind.BACKOFF}


def test_rule_10_stale_in_commit_begins_anew_with_nobody_known() -> None:
    turn = turn_of(replace(committing({"n1": STALE}), revision=10))
    assert (turn.phase, turn.epoch, turn.resident) == (Phase.PREPARING, EPOCH + 8, UNKNOWN)


# ------------------------------------------------------------------------------------------------ RELEASING


def test_rule_3_release_does_not_end_without_every_nodes_answer() -> None:
    verdict = decide(switching(Phase.RELEASING, {"n1": RELEASED}, away=("n2",)))
    assert verdict.decision is None and "n2" in verdict.note


def test_released_leaves_the_resident_as_it_was() -> None:
    turn = turn_of(switching(Phase.RELEASING, dict.fromkeys(NODES, RELEASED)))
    assert (turn.phase, turn.resident, turn.incoming) == (Phase.IDLE, on("a"), None)


def test_rule_18_a_release_that_had_to_kill_leaves_nobody_known() -> None:
    acks = {"n1": RELEASED, "n2": replace(RELEASED, lost=(process("a"),))}
    assert turn_of(switching(Phase.RELEASING, acks)).resident == UNKNOWN


def test_rule_20_the_pin_notes_the_process_records_as_the_release_left_them() -> None:
    pinned = Pinned("a", "why")
    turn = turn_of(switching(Phase.RELEASING, dict.fromkeys(NODES, RELEASED), pinned=pinned, recorded=("a",)))
    assert turn.pinned is not None and turn.pinned.processes_revision == 10


def test_rule_20_who_has_gone_before_the_release_ends_is_not_pinned() -> None:
    """It ended between the refusal and the look of the release: no later change of its processes would be seen."""
    pinned = Pinned("b", "why")
    turn = turn_of(switching(Phase.RELEASING, dict.fromkeys(NODES, RELEASED), pinned=pinned, recorded=("a",)))
    assert turn.pinned is None


def test_rule_10_stale_in_release_releases_again_above_it() -> None:
    found = decision(replace(switching(Phase.RELEASING, {"n1": STALE}), revision=10))
    assert found.turn is not None and (found.turn.phase, found.turn.epoch) == (Phase.RELEASING, EPOCH + 8)
    assert {one.kind for one in found.directives.values()} == {DirectiveKind.RELEASE}


# ------------------------------------------------------------------------------------------------ HELD


def test_held_stays_held_while_the_ticket_is_there_whatever_the_agents_do() -> None:
    view = group(*granted("a"), *waiting("b"), resident=on("a"), phase=Phase.HELD, holder="a", away=NODES)
    assert decide(view).decision is None


def test_rule_5_ticket_gone_in_held_is_lost_and_the_next_switch_begins_at_once() -> None:
    found = decision(group(*waiting("b"), resident=on("a"), phase=Phase.HELD, holder="a"))
    assert found.turn is not None and found.turn.phase is Phase.PREPARING and found.turn.resident == lost("a")
    assert {one.lost_job for one in found.directives.values()} == {"a"}


@pytest.mark.parametrize("again", [waiting("a")[0], granted("a")[0]])
def test_rule_22_the_lost_holders_new_ticket_is_not_its_old_one(again: object) -> None:
    other = replace(again, value=replace(again.value, token=TOKEN - 1))  # type: ignore[attr-defined, type-var]
    turn = turn_of(group(other, resident=on("a"), phase=Phase.HELD, holder="a"))  # type: ignore[arg-type]
    assert turn.resident == lost("a") and turn.phase is not Phase.HELD


def test_rule_10_agent_ahead_in_held_takes_the_grant_back() -> None:
    found = decision(group(*granted("a"), resident=on("a"), phase=Phase.HELD, holder="a", highest=EPOCH + 3))
    assert Remove("a", 59) in found.tickets
    assert found.turn is not None and found.turn.holder is None
    assert found.turn.resident == replace(lost("a"), kind=ResidentKind.UNKNOWN)  # and its session stays known


def test_rule_28_the_longest_hold_evicts_once_it_has_passed() -> None:
    policy = Policy(max_hold_ms=5_000)
    held = {"resident": on("a"), "phase": Phase.HELD, "holder": "a", "policy": policy}
    before = decide(group(*granted("a"), **held))  # type: ignore[arg-type]
    assert before.decision is None and {(one.kind, one.ms) for one in before.waits} == {(WaitKind.HOLD, 5_000)}
    found = decision(group(*granted("a"), passed=(WaitKind.HOLD,), **held))  # type: ignore[arg-type]
    assert found.tickets == (Remove("a", 59),) and found.turn is not None and found.turn.resident == lost("a")


# ------------------------------------------------------------------------------------------------ whole switches


def test_a_whole_switch_from_its_beginning_to_the_grant() -> None:
    view = group(*waiting("b"), resident=on("a"))
    view = apply(view, decision(view), BOTH_PREPARED)
    view = apply(view, decision(view), BOTH_COMMITTED)
    found = decision(view)
    assert found.turn is not None and found.turn.phase is Phase.HELD and found.turn.holder is not None
    assert found.turn.holder.process == ticket("b").value.process
    assert found.turn.incoming is None and not found.directives


@pytest.mark.parametrize("job", ["a", "x"])
def test_rule_14_whatever_a_node_answers_a_failing_switch_ends(job: str) -> None:
    """However often every COMMIT fails and every PREPARE is granted, there is a pause or an end within a few steps."""
    for failure, fault in [
        (Failure.NOT_SAVED, Fault.OUTGOING),
        (Failure.NOT_RESTORED, Fault.INCOMING),
        (Failure.NONE, Fault.NODE),
    ]:
        view = group(*waiting("b"), resident=on("a"))
        for _ in range(12):
            found = decide(view).decision
            if found is None or found.turn is None or found.turn.phase is Phase.HELD:
                break
            failed = said(Outcome.FAILED, fault, failure, job)
            acks = {
                Phase.PREPARING: BOTH_PREPARED,
                Phase.COMMITTING: {"n1": COMMITTED, "n2": failed},
                Phase.RELEASING: dict.fromkeys(NODES, RELEASED),
            }.get(found.turn.phase)
            view = apply(view, found, acks)
        else:
            pytest.fail(f"{failure} of {job} goes on for ever")


@pytest.mark.parametrize(
    ("phase", "kind"),
    [(Phase.COMMITTING, DirectiveKind.COMMIT), (Phase.RELEASING, DirectiveKind.RELEASE)],
)
def test_a_directive_that_somebody_has_deleted_is_told_again(phase: Phase, kind: DirectiveKind) -> None:
    """Its node would never answer it, and these phases have no end without its answer."""
    tickets = waiting("b")
    view = group(*tickets, resident=on("a"), phase=phase, incoming=bringing("b", tickets))
    assert decide(view).decision is None
    nodes = {**view.nodes, "n2": replace(view.nodes["n2"], directive=None)}
    again = decision(replace(view, nodes=nodes))
    assert view.turn is not None
    assert again.turn == view.turn.value  # written again, so that of two replicas only one tells it
    assert {node: one.kind for node, one in again.directives.items()} == {"n2": kind}
    assert again.directives["n2"].epoch == EPOCH
