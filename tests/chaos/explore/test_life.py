# SPDX-License-Identifier: Apache-2.0
"""The production agent in the model: every way in which a step may turn out, and nothing that its code does not do."""

from __future__ import annotations

import pytest

from chaos.explore.invariants import Broken
from chaos.explore.life import Lives, Situation
from chaos.explore.state import DirectiveState, Process, Record

TO_B = DirectiveState("PREPARE", "b", keep=False, kill=False, lost_job="", lost_session=0, on_session=1)
RUNS, PARKED = Process("RUNNING", 1), Process("PARKED", 1)


def _told(directive: DirectiveState | None, **more: object) -> Situation:
    """Job a runs and b is parked, and all of that is on record."""
    at = Situation(
        registered=True,
        ahead=False,
        prepared=False,
        refused=False,
        begun=0,
        locked=(),
        disk=None,
        helped=(),
        told=directive,
        behind=False,
        superseded=False,
        answer="",
        there=False,
        processes=(RUNS, PARKED),
        records=(Record("RUNNING", 1), Record("PARKED", 1)),
        recorded=True,
        claimed=True,
        lasting="",
    )
    return at._replace(**more)  # type: ignore[arg-type]


def _lives() -> Lives:
    return Lives(("a", "b"), stays=False)


def test_a_prepare_locks_what_goes_and_says_so() -> None:
    (become,) = _lives().step(_told(TO_B), {})
    assert become.processes == (Process("LOCKED", 1), PARKED)
    assert become.locked == ((0, 1),) and become.prepared
    assert become.saying is not None and become.saying.answer.outcome == "PREPARED"
    assert set(become.saying.compares) == {"directive", "agent", "ack"}


def test_a_commit_that_nothing_was_prepared_for_prepares_first_and_brings_the_next_one_on() -> None:
    (become,) = _lives().step(_told(TO_B._replace(kind="COMMIT")), {})
    assert become.processes == (PARKED, RUNS)
    assert become.begun == 1 and become.saying is not None and become.saying.answer.outcome == "COMMITTED"
    assert become.wrote, "what is parked is on record before anything is saved"


def test_it_may_die_before_each_effect_and_while_a_driver_call_is_in_flight() -> None:
    became = _lives().step(_told(TO_B._replace(kind="COMMIT")), {"restart": 1})
    died = [one for one in became if one.died]
    assert any(one.orphans == ((0, "save"),) for one in died), "a helper goes on"
    assert any(one.begun and one.processes[0] == Process("LOCKED", 1) for one in died), "begun, and nothing saved"
    assert {one.processes[0] for one in died} == {RUNS, Process("LOCKED", 1), PARKED}
    assert all(one.faults == ("restart",) and one.saying is None for one in died)


@pytest.mark.parametrize(
    ("fault", "outcome", "whose"),
    [
        ("refuse", "REFUSED", "NODE"),
        ("unsavable", "REFUSED", "OUTGOING"),
        ("resist", "REFUSED", "OUTGOING"),
    ],
)
def test_what_goes_wrong_in_a_prepare_is_said(fault: str, outcome: str, whose: str) -> None:
    went_wrong = [one for one in _lives().step(_told(TO_B), {fault: 1}) if one.faults]
    assert went_wrong
    for one in went_wrong:
        assert one.saying is not None and (one.saying.answer.outcome, one.saying.answer.fault) == (outcome, whose)
        assert one.processes == (RUNS, PARKED)


def test_what_a_refused_commit_has_locked_is_unlocked() -> None:
    """No release follows it, and on a node that was dropped maybe nothing at all (rule 23)."""
    lives, clear = _lives(), TO_B._replace(kind="COMMIT", on="", kill=True, on_session=0)
    held = [one for one in lives.step(_told(clear), {"refuse": 1}) if one.locked and not one.begun]
    assert held, "prepared by itself, and refused when it looked again"
    for one in held:
        assert one.saying is not None and one.saying.answer.outcome == "REFUSED"
        after = _told(clear, answer="REFUSED", processes=one.processes, locked=one.locked, helped=one.helped)
        (become,) = lives.step(after, {})
        assert become.processes == (RUNS, PARKED) and not become.locked


def test_a_commit_that_another_directive_has_overtaken_saves_nothing() -> None:
    became = _lives().step(_told(TO_B._replace(kind="COMMIT"), superseded=True), {})
    assert len(became) > 1, "it may hear of it at each of its looks"
    for one in became:
        assert one.processes in ((RUNS, PARKED), (Process("LOCKED", 1), PARKED))
        assert not one.begun and one.saying is None


def test_a_new_agent_unlocks_what_was_prepared_and_leaves_a_begun_commit() -> None:
    locked = (Process("LOCKED", 1), PARKED)
    (unlocked,) = _lives().start(_told(TO_B, processes=locked, locked=((0, 1),)), {})
    assert unlocked.processes == (RUNS, PARKED) and not unlocked.locked
    (left,) = _lives().start(_told(TO_B, processes=locked, locked=((0, 1),), begun=1), {})
    assert left.processes == locked


def test_a_process_that_started_beside_the_parked_is_put_on_record_between_switches() -> None:
    (become,) = _lives().step(_told(None, records=(None, None), recorded=False), {})
    assert become.wrote and become.records == (Record("RUNNING", 1), Record("PARKED", 1))


def test_a_smaller_epoch_is_answered_with_stale() -> None:
    (become,) = _lives().step(_told(TO_B, ahead=True), {})
    assert become.saying is not None and become.saying.answer.outcome == "STALE"
    assert become.processes == (RUNS, PARKED)


def test_saving_what_it_has_refused_is_seen() -> None:
    with pytest.raises(Broken, match="invariant 8"):
        _lives().step(_told(TO_B._replace(kind="COMMIT"), refused=True), {})


def test_the_same_situation_is_run_once() -> None:
    lives = _lives()
    assert lives.step(_told(TO_B), {}) is lives.step(_told(TO_B), {})
    assert lives.runs == 1
