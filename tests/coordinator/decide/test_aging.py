# SPDX-License-Identifier: Apache-2.0
"""Rule 28: a priority goes first, and under the policy `aging` it does not starve anybody."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from coordinator.decide.queue import AGING_TURNS
from ledger.kept import Kept
from ledger.records import Incoming, Outcome, Phase, Pinned, Policy, Ticket
from tests.coordinator.decide.views import COMMITTED, apply, decision, group, on, process, said, ticket, turn_of

AGING = Policy(aging=True)
OLD = ticket("o", create=50)


def urgent(number: int) -> Kept[Ticket]:
    kept = ticket("u", create=60 + number)
    return replace(kept, value=replace(kept.value, priority=1))


def rounds(policy: Policy | None, count: int) -> list[str]:
    """Who is brought on in this many switches, while an old ticket waits and an urgent one always comes again."""
    turn, served = {"passed_over": 0}, []
    for number in range(count):
        view = group(urgent(number), OLD, resident=on("x"), policy=policy, **turn)
        begun = decision(view)
        assert begun.turn is not None and begun.turn.incoming is not None
        served.append(begun.turn.incoming.job)
        committing = replace(begun, turn=replace(begun.turn, phase=Phase.COMMITTING))
        after = turn_of(apply(view, committing, {"n1": COMMITTED, "n2": COMMITTED}))
        assert after.phase is Phase.HELD
        turn = {"passed_over": after.passed_over}
    return served


def test_rule_28_with_aging_the_earliest_ticket_is_passed_over_a_few_times_and_then_served() -> None:
    assert rounds(AGING, AGING_TURNS + 3) == ["u"] * AGING_TURNS + ["o"] + ["u"] * 2


def test_rule_28_without_aging_a_priority_starves_the_others() -> None:
    assert rounds(None, AGING_TURNS + 3) == ["u"] * (AGING_TURNS + 3)


def test_rule_28_a_turn_that_costs_nothing_counts_too() -> None:
    view = group(urgent(0), OLD, resident=on("u"), policy=AGING, passed_over=AGING_TURNS - 1)
    held = turn_of(view)
    assert (held.phase, held.passed_over) == (Phase.HELD, AGING_TURNS)
    once_more = group(urgent(0), OLD, resident=on("u"), policy=AGING, passed_over=AGING_TURNS)
    incoming = turn_of(once_more).incoming
    assert incoming is not None and incoming.job == "o"


@pytest.mark.parametrize("earlier", [(), (ticket("o", create=90),)])
def test_rule_28_a_grant_that_goes_past_nobody_begins_the_count_anew(earlier: tuple[Kept[Ticket], ...]) -> None:
    assert turn_of(group(urgent(0), *earlier, resident=on("u"), policy=AGING, passed_over=3)).passed_over == 0


def test_rule_28_who_cannot_be_served_is_not_passed_over() -> None:
    view = group(urgent(0), OLD, resident=on("u"), policy=AGING, pinned=Pinned("u", "said", 99), passed_over=3)
    assert turn_of(view).passed_over == 0


def test_rule_28_the_ticket_that_a_switch_prepares_for_stays_the_one() -> None:
    """An urgent ticket that comes later does not take it over."""
    incoming = Incoming("o", OLD.create, process("o"))
    acks = {"n1": said(Outcome.PREPARED), "n2": said(Outcome.PREPARED)}
    view = group(urgent(0), OLD, phase=Phase.PREPARING, incoming=incoming, acks=acks, policy=AGING)
    after = turn_of(view)
    assert after.phase is Phase.COMMITTING and after.incoming == incoming
