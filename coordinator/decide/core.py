# SPDX-License-Identifier: Apache-2.0
"""`decide`: from the picture of a group to the one next step, if there is one."""

from __future__ import annotations

from msgspec.structs import replace

from coordinator.decide.committing import committing
from coordinator.decide.decision import Decision, Remove, Verdict
from coordinator.decide.held import held
from coordinator.decide.idle import idle
from coordinator.decide.numbers import new_turn
from coordinator.decide.preparing import preparing
from coordinator.decide.releasing import releasing
from coordinator.decide.switch import release, told_again
from coordinator.decide.view import GroupView
from ledger.records import DirectiveKind, Phase


def decide(view: GroupView) -> Verdict:
    """The next step of a group, or what it waits for.

    Pure: equal views give equal verdicts, on every replica. A decision is written as one transaction that compares
    the turn, so that of several replicas which decide alike only one succeeds and the others see its write.
    """
    if view.turn is None:
        if view.spec is None:
            return Verdict(note="There is no such group.")
        return Verdict(_begun(view))
    match view.turn.value.phase:
        case Phase.IDLE:
            return idle(view)
        case Phase.HELD:
            return _with_next(view, held(view))
        case Phase.PREPARING:
            return preparing(view)
        case Phase.COMMITTING:
            again = told_again(view)
            return Verdict(again) if again else committing(view)
        case Phase.RELEASING:
            again = told_again(view)
            return Verdict(again) if again else releasing(view)


def _begun(view: GroupView) -> Decision:
    """The first turn; or another, if a hand has deleted the last: then nobody would take back what that had locked."""
    turn, why = new_turn(view), "The group begins; nobody can say who is on its devices."
    told = (view.node(node).directive for node in turn.nodes)
    if any(one and one.value.kind is DirectiveKind.PREPARE for one in told):
        return release(view, turn, f"{why} What was being prepared is released.")
    return Decision(why, turn)


def then_decide(view: GroupView, decision: Decision) -> Decision:
    """``decision``, and what follows from it, as one transaction: a yield that begins the next switch at once.

    The first leaves the turn IDLE; both touch different tickets. Who loses the guard of the second's ticket applies the
    first alone (protocol rule 35).
    """
    assert view.turn is not None and decision.turn is not None and decision.turn.phase is Phase.IDLE
    left = view.tickets
    for change in decision.tickets:
        left = left.without(change.job) if isinstance(change, Remove) else left
    after = replace(view, turn=replace(view.turn, value=decision.turn), tickets=left)
    second = idle(after).decision
    if second is None or second.turn is None or second.turn.phase is not Phase.PREPARING:
        return decision
    return replace(
        second,
        why=f"{decision.why} {second.why}",
        tickets=decision.tickets + second.tickets,
        spec_mod=decision.spec_mod or second.spec_mod,
    )


def _with_next(view: GroupView, verdict: Verdict) -> Verdict:
    if verdict.decision is None:
        return verdict
    return replace(verdict, decision=then_decide(view, verdict.decision))
