# SPDX-License-Identifier: Apache-2.0
"""What clients and operators ask for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from coordinator.decide import Decision, GroupView, Refuse, Remove, commands, decide
from coordinator.decide.commands import Nothing, Refusal
from coordinator.decide.decision import Create
from ledger.kept import Kept
from ledger.records import (
    Directive,
    DirectiveKind,
    Health,
    Incoming,
    Phase,
    Pinned,
    Resident,
    ResidentKind,
    TicketState,
)
from tests.coordinator.decide.views import (
    EPOCH,
    REVISION,
    TOKEN,
    bringing,
    decision,
    granted,
    group,
    lost,
    on,
    ticket,
    turn_of,
    waiting,
)

HELD = {"resident": on("a"), "phase": Phase.HELD, "holder": "a"}


def acquire(view: GroupView, job: str = "a") -> Decision | Nothing:
    return commands.acquire(view, job, ticket(job).value)


def done(found: Decision | Nothing) -> Decision:
    assert isinstance(found, Decision)
    return found


def refused(ask: Callable[[], object]) -> str:
    with pytest.raises(Refusal) as caught:
        ask()
    return caught.value.reason


# ------------------------------------------------------------------------------------------------ acquire


def test_rule_33_ticket_and_grant_in_one_transaction_only_into_an_empty_queue() -> None:
    found = done(acquire(group(resident=on("a"))))
    assert found.turn is not None and found.turn.phase is Phase.HELD and found.queue_empty
    (made,) = found.tickets
    assert isinstance(made, Create) and made.ticket.state is TicketState.GRANTED and made.ticket.token == REVISION
    assert found.spec_mod == 20 and found.stands_on == {"a": 0}


@pytest.mark.parametrize(
    "view",
    [
        group(*waiting("b"), resident=on("a")),
        group(resident=lost("a")),
        group(resident=on("b")),
        group(resident=Resident(ResidentKind.UNKNOWN, "a")),
        group(resident=on("a"), paused=True),
        group(resident=on("a"), spec_mod=22),
        group(resident=on("a"), highest=EPOCH + 1),
        group(resident=on("a"), pinned=Pinned("b", "why")),
        group(resident=on("a"), phase=Phase.RELEASING, incoming=Incoming("b", 12)),
    ],
    ids=["queue", "lost", "another", "unknown", "paused", "new spec", "restored", "pinned", "releasing"],
)
def test_rule_33_else_it_queues(view: GroupView) -> None:
    found = done(acquire(view))
    assert found.turn is None and found.spec_mod
    (made,) = found.tickets
    assert isinstance(made, Create) and made.ticket.state is TicketState.WAITING


def test_rule_26_acquire_is_idempotent_by_session_and_sequence() -> None:
    assert isinstance(acquire(group(*waiting("a"))), Nothing)


def test_rule_26_a_second_caller_is_refused_while_the_jobs_key_is_there() -> None:
    other = replace(ticket("a").value, session="other")
    assert refused(lambda: commands.acquire(group(*waiting("a")), "a", other)) == "ALREADY_QUEUED"


def test_rule_27_no_new_tickets_for_a_group_that_is_being_deleted() -> None:
    assert refused(lambda: acquire(group(deleting=True))) == "GROUP_DELETING"


def test_guards_no_ticket_for_a_quarantined_job() -> None:
    assert refused(lambda: acquire(group(quarantined=("a",)))) == "JOB_QUARANTINED"


def test_no_ticket_in_no_group() -> None:
    assert refused(lambda: acquire(replace(group(), spec=None))) == "NO_SUCH_GROUP"


# ------------------------------------------------------------------------------------------------ yield


def test_rule_5_yield_ends_clean_in_the_same_transaction() -> None:
    found = done(commands.give_back(group(*granted("a"), **HELD), "a", "s-a", TOKEN))  # type: ignore[arg-type]
    assert found.turn is not None and found.turn.phase is Phase.IDLE and found.turn.resident == on("a")
    assert found.turn.yielded_token == TOKEN and found.tickets == (Remove("a", 59),) and not found.directives


def test_rule_35_yield_begins_the_next_switch_and_stands_on_its_ticket() -> None:
    view = group(*granted("a"), *waiting("b"), **HELD)  # type: ignore[arg-type]
    found = done(commands.give_back(view, "a", "s-a", TOKEN))
    assert found.turn is not None and found.turn.phase is Phase.PREPARING and found.turn.yielded_token == TOKEN
    assert found.stands_on == {"a": 59, "b": 60}
    assert {(one.kind, one.on) for one in found.directives.values()} == {(DirectiveKind.PREPARE, "b")}


def test_rule_35_yield_whose_head_is_gone_yields_alone() -> None:
    found = done(commands.give_back(group(*granted("a"), **HELD), "a", "s-a", TOKEN))  # type: ignore[arg-type]
    assert found.stands_on == {"a": 59}


def test_rule_35_yield_to_its_own_next_ticket_is_not_a_switch() -> None:
    view = group(*granted("a"), *waiting("b"), away=("n1",), **HELD)  # type: ignore[arg-type]
    assert done(commands.give_back(view, "a", "s-a", TOKEN)).turn.phase is Phase.IDLE  # type: ignore[union-attr]


def test_rule_34_the_same_yield_again_is_success() -> None:
    assert isinstance(commands.give_back(group(yielded_token=TOKEN), "a", "s-a", TOKEN), Nothing)


@pytest.mark.parametrize("token", [TOKEN - 1, 0, TOKEN + 1])
def test_promise_2_a_late_yield_changes_nothing_and_says_so(token: int) -> None:
    view = group(*granted("a"), **HELD)  # type: ignore[arg-type]
    assert refused(lambda: commands.give_back(view, "a", "s-a", token)) == "STALE_TOKEN"


def test_a_yield_by_another_session_is_refused() -> None:
    view = group(*granted("a"), **HELD)  # type: ignore[arg-type]
    assert refused(lambda: commands.give_back(view, "a", "s-x", TOKEN)) == "NOT_HOLDER"


@pytest.mark.parametrize("tickets", [(), waiting("a")])
def test_guards_yield_needs_the_granted_ticket_itself(tickets: tuple[object, ...]) -> None:
    view = group(*tickets, **HELD)  # type: ignore[arg-type]
    assert refused(lambda: commands.give_back(view, "a", "s-a", TOKEN)) == "STALE_TOKEN"


# ------------------------------------------------------------------------------------------------ cancel


def test_rule_26_cancelling_a_granted_ticket_is_a_yield() -> None:
    found = done(commands.cancel(group(*granted("a"), **HELD), "a", "s-a", 1))  # type: ignore[arg-type]
    assert found.turn is not None and found.turn.resident == on("a") and found.turn.yielded_token == TOKEN


def test_rule_26_cancelling_a_waiting_ticket_removes_it() -> None:
    assert done(commands.cancel(group(*waiting("a")), "a", "s-a", 1)).tickets == (Remove("a", 60),)


def test_rule_19_cancel_in_committing_is_noted_in_the_turn() -> None:
    view = group(*waiting("b"), resident=on("a"), phase=Phase.COMMITTING, incoming=bringing("b", waiting("b")))
    found = done(commands.cancel(view, "b", "s-b", 1))
    assert found.turn is not None and found.turn.incoming is not None and found.turn.incoming.cancelled


@pytest.mark.parametrize(("session", "sequence"), [("s-x", 1), ("s-a", 2)])
def test_rule_26_cancel_of_another_acquire_changes_nothing(session: str, sequence: int) -> None:
    assert isinstance(commands.cancel(group(*waiting("a")), "a", session, sequence), Nothing)


# ------------------------------------------------------------------------------------------------ operators


def test_rule_27_pause_writes_the_turn() -> None:
    found = done(commands.pause(group(), paused=True))
    assert found.turn is not None and found.turn.paused
    assert isinstance(commands.pause(group(), paused=False), Nothing)


def test_evicted_holder_is_lost_and_its_ticket_goes_in_the_same_transaction() -> None:
    found = done(commands.evict(group(*granted("a"), *waiting("b"), **HELD), "a"))  # type: ignore[arg-type]
    assert Remove("a", 59) in found.tickets
    assert found.turn is not None and found.turn.resident == lost("a") and found.turn.phase is Phase.PREPARING


def test_evicted_waiter_is_refused() -> None:
    found = done(commands.evict(group(*waiting("a"), resident=on("b")), "a"))
    assert isinstance(found.tickets[0], Refuse) and found.tickets[0].reason == "EVICTED"


@pytest.mark.parametrize("tickets", [(), waiting("a")])
def test_rule_20_evicting_a_pinned_job_kills_it(tickets: tuple[object, ...]) -> None:
    view = group(*tickets, resident=on("a"), pinned=Pinned("a", "why", 10), recorded=("a",))  # type: ignore[arg-type]
    found = done(commands.evict(view, "a"))
    assert found.turn is not None and found.turn.pinned is None and found.turn.kill
    assert {(one.on, one.kill) for one in found.directives.values()} == {("", True)}


def test_rule_20_a_yield_of_its_own_is_followed_by_one_more_try() -> None:
    """What hindered the save may have passed without its processes changing: the next in the queue is tried."""
    view = group(
        *granted("a"),
        *waiting("b"),
        resident=on("a"),
        phase=Phase.HELD,
        holder="a",
        pinned=Pinned("a", "why", 10),
        recorded=("a",),
    )
    ticket = view.ticket("a")
    assert ticket is not None
    found = done(commands.give_back(view, "a", ticket.value.session, ticket.value.token))
    assert found.turn is not None and found.turn.pinned is None
    assert found.turn.phase is Phase.PREPARING and found.turn.incoming is not None and found.turn.incoming.job == "b"


def test_rule_27_evict_in_mid_switch_waits_for_its_end() -> None:
    view = group(resident=on("a"), phase=Phase.COMMITTING, incoming=Incoming("b", 12))
    assert refused(lambda: commands.evict(view, "a")) == "CONFLICT"


def test_unquarantine() -> None:
    view = group(quarantined=("a",))
    found = done(commands.unquarantine(view, "a"))
    assert found.health["a"].health is Health.OK
    assert view.turn is not None and found.turn == view.turn.value
    assert refused(lambda: commands.unquarantine(group(), "a")) == "NO_SUCH_JOB"


def test_an_operator_who_writes_the_turn_of_a_switch_stands_on_no_ticket() -> None:
    """Else, once that has gone, the command loses its guard again and again, and the release waits for the command."""
    tickets = waiting("b")
    view = group(*tickets, phase=Phase.PREPARING, incoming=bringing("b", tickets), quarantined=("a",))
    for asked in (commands.unquarantine(view, "a"), commands.pause(view, paused=True)):
        assert done(asked).turn is not None and not done(asked).stands_on


@pytest.mark.parametrize("away", [("n2",), ()], ids=["its agent is away", "its agent is about to clear it"])
def test_rule_23_nobody_who_has_processes_on_a_dropped_node_is_declared_sound_until_it_is_back(
    away: tuple[str, ...],
) -> None:
    dropped = group(resident=on("b"), quarantined=("a", "c"), recorded=("a",), away=away, nodes=("n1",))
    assert done(commands.unquarantine(dropped, "a")).health["a"].health is Health.OK, "n2 has yet to be told anything"
    told = Kept("n2", Directive(epoch=EPOCH, kind=DirectiveKind.COMMIT), 50, 50)
    dropped = replace(dropped, nodes={**dropped.nodes, "n2": replace(dropped.node("n2"), directive=told)})
    with pytest.raises(Refusal, match="a had processes on n2") as refusal:
        commands.unquarantine(dropped, "a")
    assert refusal.value.reason == "NODE_DROPPED" and refusal.value.metadata["nodes"] == "n2"
    assert done(commands.unquarantine(dropped, "c")).health["c"].health is Health.OK, "c has none there"
    insists = done(commands.unquarantine(dropped, "a", force=True))
    assert insists.health["a"].health is Health.OK
    back = group(resident=on("b"), quarantined=("a",), recorded=("a",), away=away)
    assert done(commands.unquarantine(back, "a")).health["a"].health is Health.OK, "a switch will show who is on"


# ------------------------------------------------------------------------------------------------ the spec


def test_rule_4_a_new_spec_is_adopted_in_idle_with_the_resident_unknown() -> None:
    found = decision(group(resident=on("a"), spec_mod=25, spec_nodes=("n1", "n3")))
    assert found.turn is not None and found.spec_mod == 25
    assert (found.turn.nodes, found.turn.leaving) == (("n1", "n2", "n3"), ("n2",))
    assert found.turn.resident == Resident(ResidentKind.UNKNOWN) and found.turn.generation == 25


def test_rule_4_refused_while_jobs_are_parked_there() -> None:
    view = group(*waiting("a"), resident=on("a"), spec_mod=25, spec_nodes=("n1",), recorded=("b",))
    assert turn_of(view).phase is Phase.HELD, "the group goes on with the spec in force"


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.COMMITTING, Phase.RELEASING])
def test_rule_4_not_adopted_in_mid_switch(phase: Phase) -> None:
    view = group(*waiting("b"), resident=on("a"), phase=phase, incoming=bringing("b", waiting("b")), spec_mod=25)
    assert decide(view).decision is None


def test_rule_27_deletion_refuses_the_waiting_and_then_removes_the_group_from_idle() -> None:
    first = decision(group(*waiting("a"), resident=on("b"), deleting=True))
    assert isinstance(first.tickets[0], Refuse) and first.tickets[0].reason == "GROUP_DELETING"
    last = decision(group(resident=on("b"), deleting=True))
    assert last.remove_group and last.queue_empty and last.spec_mod == 20
    assert last.unclaim == (("n1", "gpu-n1"), ("n2", "gpu-n2"))


def test_rule_27_deletion_waits_for_parked_jobs() -> None:
    verdict = decide(group(resident=on("a"), deleting=True, recorded=("a", "b")))
    assert verdict.decision is None and "b" in verdict.note


def test_rule_29_one_of_several_tickets_is_never_granted_by_its_own_making() -> None:
    view = group(resident=on("a"))
    alone = ticket("a").value
    several = replace(alone, groups=("g", "h"))
    assert [one.ticket.state for one in _created(commands.acquire(view, "a", alone))] == [TicketState.GRANTED]
    assert [one.ticket.state for one in _created(commands.acquire(view, "a", several))] == [TicketState.WAITING]


def test_rule_29_a_pinned_job_cannot_ask_for_several_groups() -> None:
    view = group(resident=on("a"), pinned=Pinned("a", "why", processes_revision=10), recorded=("a",))
    several = replace(ticket("a").value, groups=("g", "h"))
    with pytest.raises(Refusal) as caught:
        commands.acquire(view, "a", several)
    assert caught.value.reason == "PINNED"
    assert isinstance(commands.acquire(view, "b", several), Decision)


def _created(answer: Decision | Nothing) -> list[Create]:
    assert isinstance(answer, Decision)
    return [change for change in answer.tickets if isinstance(change, Create)]
