# SPDX-License-Identifier: Apache-2.0
"""The session's state machine, by tables: events in, requests and results out. No clock, no socket."""

from __future__ import annotations

import math

import pytest

from tests.tsclient.driven_session import PROOF, TTL, DrivenSession
from timeslice_proto.v1 import coordinator_pb2 as pb
from timeslice_proto.v1 import records_pb2
from tsclient import errors
from tsclient.session import STAND_IN_AGAIN

GONE = errors.SessionExpired("gone")
BROKEN = errors.Unavailable("broken")


@pytest.fixture
def s() -> DrivenSession:
    return DrivenSession()


NO_COORDINATOR = errors.TimesliceError("h:1 answers PERMISSION_DENIED: status 403", code="PERMISSION_DENIED")


# ---------------------------------------------------------------- open, acquire, yield


def test_the_plain_way(s: DrivenSession) -> None:
    assert s.acquire() == (1, [])
    assert s.connect() == ["send open"]
    assert s.opened() == ["send beat", "opened", "send acquire 1"]
    assert s.confirm() == []
    assert s.event(queued=pb.Queued(sequence=1, group="g", position=2, note="paused")) == [
        "moved 1 g: place 2 (paused)"
    ]
    switching = pb.Switching(sequence=1, group="g", phase=records_pb2.PHASE_COMMITTING, epoch=5, nodes=2, answered=1)
    assert s.event(switching=switching) == ["moved 1 g: committing 1/2 nodes (epoch 5)"]
    assert s.granted(1) == ["granted 1"]
    assert s.yield_(1) == ["send yield 1"]
    assert s.last("yield") == pb.YieldRequest(sequence=1, job="a", group="g", token=7)
    assert s.event(yielded=pb.Yielded(sequence=1, group="g", waiters=3)) == ["given back 1, 3 wait"]


def test_a_grant_waits_for_the_first_proof(s: DrivenSession) -> None:
    s.connect()
    s.opened()
    s.acquire()
    assert s.granted(1) == []
    assert s.confirm() == ["granted 1"]


def test_a_refusal_is_told_by_its_class(s: DrivenSession) -> None:
    s.start()
    s.acquire()
    refused = pb.Refused(sequence=1, reason="JOB_QUARANTINED", message="it could not be saved")
    assert s.event(refused=refused) == ["failed 1 JOB_QUARANTINED"]
    # And its place among the acquires of this process is free.
    assert s.acquire()[1] == ["send acquire 2"]


def test_a_refusal_that_says_nothing_against_the_request_is_asked_again(s: DrivenSession) -> None:
    s.start()
    s.acquire()
    refused = pb.Refused(sequence=1, reason="STORE_UNAVAILABLE", message="etcd is away")
    assert s.event(refused=refused) == []
    assert s.session.next_at() == s.now + 0.5
    assert s.tick(0.4) == []
    assert s.tick(0.1) == ["send acquire 1"]


def test_an_event_of_a_newer_server_changes_nothing(s: DrivenSession) -> None:
    s.start()
    assert s.event() == []


# ---------------------------------------------------------------- beats and the proof


def test_beats_go_out_by_thirds_and_name_what_is_wanted(s: DrivenSession) -> None:
    s.start()
    s.acquire("a")
    s.acquire("b")
    s.granted(2)
    s.acquire("c")
    s.give_up(3)
    assert s.session.next_at() == pytest.approx(s.now + TTL / 3)
    assert s.tick(TTL / 3) == ["send beat"]
    assert s.last("beat") == pb.BeatRequest(number=2, last_sequence=3, wanted=[1, 2], prune=True)


def test_the_proof_counts_from_when_the_beat_was_sent(s: DrivenSession) -> None:
    s.connect()
    s.opened()
    sent = s.now
    s.now += 2.5
    s.confirm()
    assert s.session.proof == pytest.approx(sent + PROOF)


def test_an_older_answer_never_shortens_the_proof(s: DrivenSession) -> None:
    s.hold()
    s.tick(TTL / 3)
    s.confirm(2)
    proof = s.session.proof
    s.confirm(1)
    assert s.session.proof == proof


def test_a_holder_without_proof_has_lost_for_good(s: DrivenSession) -> None:
    key = s.hold()
    s.tick(TTL / 3)  # beat 2, sent at 3 s
    s.now += PROOF - TTL / 3 - 0.01
    assert s.tick() == ["hang up"]  # the proof of beat 1 has not passed yet
    assert s.session.next_at() == pytest.approx(s.now + 0.01)
    assert s.tick(0.01) == [f"lost {key} TURN_LOST"]


def test_a_confirmation_that_comes_too_late_saves_nobody(s: DrivenSession) -> None:
    key = s.hold()
    s.tick(TTL / 3)
    s.now += PROOF - TTL / 3
    # The answer to beat 2 would carry the proof on; the turn was lost before it came.
    assert s.confirm(2)[0] == f"lost {key} TURN_LOST"
    assert s.session.proof > s.now


def test_a_lost_turn_is_given_back_and_queues_again_behind_that(s: DrivenSession) -> None:
    key = s.hold()
    s.tick(TTL / 3)
    s.now += PROOF - TTL / 3
    assert s.confirm(2) == [f"lost {key} TURN_LOST", "send cancel 1"]
    assert s.event(cancelled=pb.Cancelled(sequence=1)) == [f"withdrawn {key}", "send acquire 2"]
    assert s.noticed(key) == ["send cancel 2"]


def test_a_waiter_is_not_bound_by_the_deadline(s: DrivenSession) -> None:
    s.start()
    s.acquire()
    s.disconnect(BROKEN)
    assert s.tick(10 * TTL) == []
    assert s.connect() == ["send resume"]
    assert s.opened(resumed=True) == ["send beat", "opened"]
    assert s.granted(1) == []  # no proof yet
    assert s.confirm() == ["granted 1"]


# ---------------------------------------------------------------- streams break


def test_resume_names_what_is_waited_for_and_held(s: DrivenSession) -> None:
    s.hold()
    s.acquire("b")
    s.disconnect(BROKEN)
    assert s.connect() == ["send resume"]
    assert s.last("resume") == pb.ResumeSession(
        session="s1",
        secret="secret",
        wanted=[pb.AcquireRequest(sequence=2, job="b", groups=["g"])],
        held=[pb.HeldTurn(sequence=1, job="a", group="g", token=7)],
        last_sequence=2,
    )
    assert s.opened(resumed=True) == ["send beat", "opened"]


def test_until_the_deadline_nobody_hears_of_a_broken_stream(s: DrivenSession) -> None:
    key = s.hold()
    for _ in range(5):
        assert s.disconnect(BROKEN) == []
        assert s.tick(1.0) == []
        assert s.connect() == ["send resume"]
    s.opened(resumed=True)
    s.confirm()
    assert s.yield_(key) == ["send yield 1"]


def test_what_was_asked_while_away_is_sent_after_the_greeting(s: DrivenSession) -> None:
    s.hold()
    s.disconnect(BROKEN)
    s.connect()
    s.acquire("b")  # too late for the resume
    assert s.opened(resumed=True) == ["send beat", "opened", "send acquire 2"]


def test_an_unanswered_yield_is_sent_again(s: DrivenSession) -> None:
    key = s.hold()
    assert s.yield_(key) == ["send yield 1"]
    s.disconnect(BROKEN)
    s.connect()
    assert s.opened(resumed=True) == ["send beat", "opened", "send yield 1"]
    # It had been carried out before the stream broke: the turn is reported lost, the yield as done.
    assert s.event(lost=pb.Lost(sequence=1, group="g", token=7, reason="TURN_LOST")) == []
    assert s.event(yielded=pb.Yielded(sequence=1, group="g", again=True)) == [f"given back {key}, 0 wait"]


@pytest.mark.parametrize("another_process", [False, True])
def test_a_repeated_yield_that_comes_after_others_turns_is_done(s: DrivenSession, another_process: bool) -> None:
    key = s.hold()
    assert s.yield_(key) == ["send yield 1"]
    if another_process:
        s.hand_over(proof=s.session.proof)
    else:
        s.disconnect(BROKEN)
    s.connect()
    assert "send yield 1" in s.opened(resumed=True)
    # The turn keeps the last token given back alone: to a replica that was told so late this one is merely old.
    refused = pb.Refused(sequence=1, reason="STALE_TOKEN", message="token 9 is in force", metadata={"group": "g"})
    assert s.event(refused=refused) == [f"given back {key}, 0 wait"]


def test_an_unanswered_cancel_is_sent_again(s: DrivenSession) -> None:
    s.start()
    key, _ = s.acquire()
    s.give_up(key)
    s.disconnect(BROKEN)
    s.connect()
    assert s.last("resume") == pb.ResumeSession(session="s1", secret="secret", last_sequence=1)
    assert s.opened(resumed=True) == ["send beat", "opened", "send cancel 1"]


def test_a_yield_ends_at_the_proof_whatever_the_stream_does(s: DrivenSession) -> None:
    key = s.hold()
    s.disconnect(BROKEN)
    assert s.yield_(key) == []
    assert s.tick(PROOF) == [f"given back {key}"]


def test_a_replica_that_leaves_is_left_at_once(s: DrivenSession) -> None:
    s.hold()
    assert s.event(go_away=pb.GoAway(why="upgrade")) == ["hang up"]
    assert s.event(go_away=pb.GoAway()) == []  # once is enough


def test_a_beat_without_answer_ends_the_stream_while_there_is_time_left(s: DrivenSession) -> None:
    s.hold()
    assert s.tick(TTL / 3) == ["send beat"]
    assert s.tick(TTL / 3) == ["hang up"]
    assert s.session.proof - s.now > TTL / 4


def test_a_greeting_that_does_not_come_ends_the_stream(s: DrivenSession) -> None:
    s.hold()
    s.disconnect(BROKEN)
    s.connect()
    assert s.tick(TTL / 3 - 0.01) == []
    assert s.tick(0.01) == ["hang up"]


def test_nothing_is_due_without_a_stream(s: DrivenSession) -> None:
    s.start()
    s.acquire()
    s.disconnect(BROKEN)
    assert s.session.next_at() == math.inf


def test_a_held_turn_after_a_resume_is_no_reason_to_wake_up(s: DrivenSession) -> None:
    s.hold()
    s.disconnect(BROKEN)
    s.connect()
    s.opened(resumed=True)
    assert s.session.next_at() > s.now


# ---------------------------------------------------------------- sessions end


@pytest.mark.parametrize("how", ["lost event", "resume refused", "taken", "bad secret"])
def test_when_the_session_is_gone_holders_lose_and_waiters_go_on(s: DrivenSession, how: str) -> None:
    key = s.hold()
    waiter, _ = s.acquire("b")
    words = []
    match how:
        case "lost event":
            words += s.event(lost=pb.Lost(sequence=0, reason="SESSION_EXPIRED"))
            assert words[-1] == "hang up"
            words += s.disconnect(GONE)
        case "resume refused":
            s.disconnect(BROKEN)
            s.connect()
            words += s.disconnect(GONE)
        case "taken":
            words += s.disconnect(errors.SessionTaken("taken"))
        case "bad secret":
            words += s.disconnect(errors.BadSecret("?"))
    assert [word for word in words if word != "hang up"] == [f"lost {key} TURN_LOST"]
    assert s.connect() == ["send open"]
    words = s.opened()
    # The waiter's numbers are new ones: what is still on its way of the old session means nobody.
    assert words[:2] == ["send beat", "opened"]
    asked = [r.acquire for r in s.sent if r.HasField("acquire")][2:]
    assert sorted(a.job for a in asked) == ["a", "b"]
    assert all(a.sequence > 2 for a in asked)
    s.confirm()
    again = next(a.sequence for a in asked if a.job == "b")
    assert s.granted(again, token=9) == [f"granted {waiter}"]


def test_a_yield_on_its_way_when_the_session_ends_is_done(s: DrivenSession) -> None:
    key = s.hold()
    s.yield_(key)
    assert s.event(lost=pb.Lost(sequence=0)) == [f"given back {key}", "hang up"]


def test_a_cancel_on_its_way_when_the_session_ends_is_done(s: DrivenSession) -> None:
    s.start()
    key, _ = s.acquire()
    s.give_up(key)
    assert s.event(lost=pb.Lost(sequence=0)) == [f"withdrawn {key}", "hang up"]


def test_a_grant_without_proof_of_a_session_that_ended_is_asked_for_again(s: DrivenSession) -> None:
    s.connect()
    s.opened()
    s.acquire()
    s.granted(1)
    s.disconnect(GONE)
    s.connect()
    assert "send acquire 2" in s.opened()


def test_a_request_that_no_replica_can_like_ends_it_all(s: DrivenSession) -> None:
    waiter, _ = s.acquire()
    s.connect()
    assert s.disconnect(errors.BadRequest("ttl")) == [f"failed {waiter} BAD_REQUEST", "ended BAD_REQUEST"]
    with pytest.raises(errors.BadRequest):
        s.acquire()
    assert s.session.next_at() == math.inf


# ---------------------------------------------------------------- turns are taken


@pytest.mark.parametrize(("reason", "expected"), [("EVICTED", "EVICTED"), ("TURN_LOST", "TURN_LOST")])
def test_a_turn_taken_while_the_session_lives(s: DrivenSession, reason: str, expected: str) -> None:
    key = s.hold()
    lost = pb.Lost(sequence=1, group="g", token=7, reason=reason, message="by hand")
    # Its ticket is gone already: no cancel, and the job is in the queue again at once.
    assert s.event(lost=lost) == [f"lost {key} {expected}", "send acquire 2"]


def test_a_yield_that_comes_too_late_says_that_the_turn_was_lost(s: DrivenSession) -> None:
    key = s.hold()
    s.disconnect(BROKEN)
    s.yield_(key)
    s.connect()
    s.opened(resumed=True)
    refused = pb.Refused(sequence=1, reason="STALE_TOKEN", message="token 9 is in force")
    assert s.event(refused=refused) == [f"failed {key} TURN_LOST"]


def test_the_place_of_a_lost_turn_is_taken_over_by_the_next_acquire(s: DrivenSession) -> None:
    s.hold()
    s.event(lost=pb.Lost(sequence=1, group="g", token=7, reason="EVICTED"))
    key, words = s.acquire()
    assert words == []  # already asked for, as number 2
    assert s.granted(2, token=9) == [f"granted {key}"]
    assert s.noticed(1) == []  # not its any more


def test_a_granted_place_of_a_lost_turn_is_taken_over_too(s: DrivenSession) -> None:
    s.hold()
    s.event(lost=pb.Lost(sequence=1, group="g", token=7, reason="EVICTED"))
    assert s.granted(2, token=9) == []
    key, words = s.acquire()
    assert words == [f"granted {key}"]


def test_a_place_of_another_priority_is_not_taken_over(s: DrivenSession) -> None:
    s.hold()
    s.event(lost=pb.Lost(sequence=1, group="g", token=7, reason="EVICTED"))
    _, words = s.acquire(priority=5)
    assert words == ["send cancel 2"]
    assert "send acquire 3" in s.event(cancelled=pb.Cancelled(sequence=2))


def test_the_owner_of_a_lost_turn_who_noticed_leaves_the_queue(s: DrivenSession) -> None:
    key = s.hold()
    s.event(lost=pb.Lost(sequence=1, group="g", token=7, reason="EVICTED"))
    s.granted(2, token=9)
    assert s.noticed(key) == ["send cancel 2"]
    assert s.noticed(key) == []


def test_a_place_held_for_a_lost_turn_that_is_lost_again_is_taken_again(s: DrivenSession) -> None:
    key = s.hold()
    s.event(lost=pb.Lost(sequence=1, group="g", token=7, reason="EVICTED"))
    s.granted(2, token=9)
    assert s.event(lost=pb.Lost(sequence=2, group="g", token=9, reason="EVICTED")) == ["send acquire 3"]
    assert s.noticed(key) == ["send cancel 3"]


@pytest.mark.parametrize("reason", ["JOB_QUARANTINED", "EVICTED", "GROUP_DELETING", "NO_SUCH_GROUP", "ALREADY_QUEUED"])
def test_a_lost_turn_that_is_refused_its_place_asks_for_another_after_a_while(s: DrivenSession, reason: str) -> None:
    # Its owner may be blocked on the device: only a grant can wake it up, whatever an operator has to do first.
    key = s.hold()
    s.event(lost=pb.Lost(sequence=1, group="g", token=7, reason="EVICTED"))
    assert s.event(refused=pb.Refused(sequence=2, reason=reason, message="no")) == []
    asked_again_at = s.now + STAND_IN_AGAIN
    sent: list[str] = []
    while not sent:
        assert s.session.next_at() > s.now, "it would be asked all the time"
        s.now = min(s.session.next_at(), asked_again_at)
        sent = [word for word in s.tick() if "acquire" in word]
        s.confirm()
    assert (sent, s.now) == (["send acquire 3"], asked_again_at)
    assert s.noticed(key) == ["send cancel 3"]


def test_the_owner_of_a_lost_turn_that_was_refused_its_place_may_ask_at_once(s: DrivenSession) -> None:
    s.hold()
    s.event(lost=pb.Lost(sequence=1, group="g", token=7, reason="EVICTED"))
    s.event(refused=pb.Refused(sequence=2, reason="EVICTED", message="no"))
    key, words = s.acquire()
    assert words == ["send acquire 3"]
    assert s.granted(3, token=9) == [f"granted {key}"]


def test_the_owner_of_a_lost_turn_that_was_refused_its_place_leaves_nothing(s: DrivenSession) -> None:
    key = s.hold()
    s.event(lost=pb.Lost(sequence=1, group="g", token=7, reason="EVICTED"))
    s.event(refused=pb.Refused(sequence=2, reason="EVICTED", message="no"))
    assert s.noticed(key) == ["withdrawn 2"]
    assert not s.session.entries


def test_a_thread_that_waits_for_the_job_stands_in_for_a_lost_turn(s: DrivenSession) -> None:
    s.hold()
    second, words = s.acquire()
    assert words == []
    assert s.event(lost=pb.Lost(sequence=1, group="g", token=7, reason="EVICTED"))[1:] == ["send acquire 2"]
    assert s.granted(2, token=9) == [f"granted {second}"]


# ---------------------------------------------------------------- cancels


def test_giving_up_before_anything_was_sent_leaves_no_trace(s: DrivenSession) -> None:
    key, _ = s.acquire()
    assert s.give_up(key) == [f"withdrawn {key}"]
    s.connect()
    assert s.opened() == ["send beat", "opened"]


def test_a_cancel_that_crosses_the_grant_gives_it_back(s: DrivenSession) -> None:
    s.start()
    key, _ = s.acquire()
    assert s.give_up(key) == ["send cancel 1"]
    assert s.granted(1) == []
    assert s.event(cancelled=pb.Cancelled(sequence=1)) == [f"withdrawn {key}"]
    assert s.give_up(key) == []


def test_a_cancelled_acquire_is_not_named_by_the_next_beat(s: DrivenSession) -> None:
    s.start()
    key, _ = s.acquire()
    s.give_up(key)
    s.tick(TTL / 3)
    assert s.last("beat") == pb.BeatRequest(number=2, last_sequence=1, wanted=[], prune=True)


def test_a_held_turn_that_is_dropped_is_cancelled(s: DrivenSession) -> None:
    key = s.hold()
    assert s.give_up(key) == ["send cancel 1"]


def test_acquires_for_one_job_go_one_after_the_other(s: DrivenSession) -> None:
    s.start()
    keys = [s.acquire()[0] for _ in range(3)]
    other_group = s.acquire(group="h")[1]
    assert other_group == ["send acquire 2"]  # waits for nobody
    s.granted(1)
    s.yield_(keys[0])
    assert s.event(yielded=pb.Yielded(sequence=1, group="g"))[1:] == ["send acquire 3"]
    # The third waits until nothing of the second is left on the server.
    assert s.give_up(keys[1]) == ["send cancel 3"]
    assert s.event(cancelled=pb.Cancelled(sequence=3)) == [f"withdrawn {keys[1]}", "send acquire 4"]


# ---------------------------------------------------------------- several groups


def both(s: DrivenSession) -> int:
    """Holding "g" (token 7) and "h" (token 8)."""
    s.start()
    key, words = s.acquire("a", "g", 0, "h")
    assert words == ["send acquire 1"]
    assert s.last("acquire") == pb.AcquireRequest(sequence=1, job="a", groups=["g", "h"])
    assert s.granted(1, 7, "g", "h") == [f"granted {key}"]
    return key


def test_several_groups_are_yielded_each_and_given_back_with_the_last(s: DrivenSession) -> None:
    key = both(s)
    assert s.yield_(key) == ["send yield 1", "send yield 1"]
    assert s.event(yielded=pb.Yielded(sequence=1, group="h", waiters=2)) == []
    # A stream that breaks here has one of them left to ask for.
    s.disconnect(BROKEN)
    s.connect()
    held = [pb.HeldTurn(sequence=1, job="a", group="g", token=7)]
    assert s.last("resume") == pb.ResumeSession(session="s1", secret="secret", held=held, last_sequence=1)
    assert s.opened(resumed=True)[2:] == ["send yield 1"]
    assert s.last("yield") == pb.YieldRequest(sequence=1, job="a", group="g", token=7)
    assert s.event(yielded=pb.Yielded(sequence=1, group="g", waiters=1)) == [f"given back {key}, 3 wait"]


def test_a_turn_that_is_lost_in_one_group_is_given_back_in_the_others(s: DrivenSession) -> None:
    key = both(s)
    lost = pb.Lost(sequence=1, group="h", token=8, reason="EVICTED")
    assert s.event(lost=lost) == [f"lost {key} EVICTED", "send cancel 1"]
    assert s.outputs[-2].error.group == "h"  # type: ignore[union-attr]
    # Behind that it stands in all queues again, until its owner has noticed.
    assert s.event(cancelled=pb.Cancelled(sequence=1)) == [f"withdrawn {key}", "send acquire 2"]
    assert s.noticed(key) == ["send cancel 2"]


def test_a_yield_that_comes_too_late_in_one_group_takes_back_the_others(s: DrivenSession) -> None:
    key = both(s)
    s.yield_(key)
    refused = pb.Refused(sequence=1, reason="STALE_TOKEN", message="old", metadata={"group": "g"})
    assert s.event(refused=refused) == [f"failed {key} TURN_LOST", "send cancel 1"]


def test_acquires_that_share_a_group_go_one_after_the_other(s: DrivenSession) -> None:
    key = both(s)
    assert s.acquire("a", "h")[1] == []
    assert s.acquire("a", "i")[1] == ["send acquire 2"]
    s.yield_(key)
    s.event(yielded=pb.Yielded(sequence=1, group="h"))
    assert s.event(yielded=pb.Yielded(sequence=1, group="g")) == [f"given back {key}, 0 wait", "send acquire 3"]


# ---------------------------------------------------------------- nobody is there


def test_while_no_beat_may_be_sent_none_is_and_nothing_is_asked_for(s: DrivenSession) -> None:
    key = s.hold()
    s.may_beat = False
    assert s.tick(TTL / 3) == []
    assert s.acquire("b")[1] == []
    s.now += PROOF - TTL / 3
    # It is lost; it is not given back, since its holder may not be done, and does not stand in the queue again.
    assert s.tick() == [f"lost {key} TURN_LOST"]
    assert s.session.next_at() > s.now
    assert s.event(lost=pb.Lost(sequence=0)) == [f"withdrawn {key}", "hang up"]
    s.connect()
    assert s.opened() == ["opened"]
    s.may_beat = True
    assert s.tick(TTL / 3)[0] == "send beat"
    assert sorted(r.acquire.job for r in s.sent[-2:]) == ["a", "b"]


def test_who_may_beat_again_in_time_has_lost_nothing(s: DrivenSession) -> None:
    key = s.hold()
    s.may_beat = False
    assert s.tick(TTL / 3) == []
    assert s.session.next_at() <= s.now + TTL / 10
    s.may_beat = True
    assert s.tick(TTL / 10) == ["send beat"]
    s.confirm()
    s.now += TTL / 2
    assert s.yield_(key) == ["send yield 1"]


# ---------------------------------------------------------------- another process goes on


def test_another_process_goes_on_where_the_first_was(s: DrivenSession) -> None:
    key = s.hold()
    waiter, _ = s.acquire("b")
    s.hand_over(proof=s.session.proof)
    assert s.connect() == ["send resume"]
    assert s.last("resume") == pb.ResumeSession(
        session="s1",
        secret="secret",
        wanted=[pb.AcquireRequest(sequence=2, job="b", groups=["g"])],
        held=[pb.HeldTurn(sequence=1, job="a", group="g", token=7)],
        last_sequence=2,
    )
    assert s.opened(resumed=True) == ["send beat", "opened"]
    assert s.granted(2, 9) == [f"granted {waiter}"]
    assert s.yield_(key) == ["send yield 1"]
    assert s.acquire("c")[1] == ["send acquire 3"]


def test_one_that_goes_on_too_late_has_lost(s: DrivenSession) -> None:
    key = s.hold()
    proof = s.session.proof
    s.hand_over(proof)
    s.now = proof
    assert s.connect()[0] == "send resume"
    assert f"lost {key} TURN_LOST" in s.opened(resumed=True)


def test_a_place_that_stands_in_for_a_lost_turn_is_handed_over_too(s: DrivenSession) -> None:
    key = s.hold()
    s.event(lost=pb.Lost(sequence=1, group="g", token=7, reason="EVICTED"))
    s.granted(2, token=9)
    s.hand_over(proof=-math.inf)
    s.connect()
    assert [(held.sequence, held.token) for held in s.last("resume").held] == [(2, 9)]  # type: ignore[attr-defined]
    s.opened(resumed=True)
    assert s.confirm() == []
    assert s.noticed(key) == ["send cancel 2"]


def test_an_abandoned_session_is_ended_and_not_given_back(s: DrivenSession) -> None:
    key = s.hold()
    assert s._words(s.session.close(s.now, abandoned=True)) == [f"failed {key} CLIENT_CLOSED", "send close"]
    assert s.last("close") == pb.CloseRequest(abandoned=True)


# ---------------------------------------------------------------- closing


def test_close_gives_everything_back_and_ends(s: DrivenSession) -> None:
    key = s.hold()
    waiter, _ = s.acquire("b")
    assert s.close() == [f"failed {key} CLIENT_CLOSED", f"failed {waiter} CLIENT_CLOSED", "send close"]
    with pytest.raises(errors.ClientClosed):
        s.acquire()
    assert s.event(closed=pb.Closed()) == ["ended"]
    assert s.close() == []


def test_close_while_away_is_said_after_the_resume(s: DrivenSession) -> None:
    s.hold()
    s.disconnect(BROKEN)
    s.close()
    assert s.connect() == ["send resume"]
    assert s.last("resume") == pb.ResumeSession(session="s1", secret="secret", last_sequence=1)
    assert s.opened(resumed=True) == ["send close"]


def test_close_of_a_session_that_has_ended_meanwhile(s: DrivenSession) -> None:
    s.hold()
    s.disconnect(BROKEN)
    s.close()
    s.connect()
    assert s.disconnect(GONE) == ["ended"]


def test_close_before_there_was_a_session(s: DrivenSession) -> None:
    assert s.close() == ["ended"]


def test_what_is_no_coordinator_ends_no_session_that_is_open(s: DrivenSession) -> None:
    """It may have the port of a dead replica, or be a gateway that knows none at the moment; the turn is proved."""
    key, _ = s.acquire()
    s.connect()
    s.opened()
    s.confirm()
    s.granted(key)
    assert s.disconnect(NO_COORDINATOR) == []
    assert s.connect() == ["send resume"]


@pytest.mark.parametrize(
    "refusal", [NO_COORDINATOR, errors.Unauthenticated("no token that is known"), errors.BadRequest("no")]
)
def test_a_refusal_ends_what_is_not_open(s: DrivenSession, refusal: errors.TimesliceError) -> None:
    s.acquire()
    s.connect()
    assert s.disconnect(refusal) == [f"failed 1 {refusal.reason}", f"ended {refusal.reason}"]


def test_a_coordinators_refusal_ends_an_open_session_too(s: DrivenSession) -> None:
    s.connect()
    s.opened()
    assert s.disconnect(errors.Unauthenticated("no token that is known")) == ["ended UNAUTHENTICATED"]
