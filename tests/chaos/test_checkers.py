# SPDX-License-Identifier: Apache-2.0
"""Each checker notices what it is for: evidence with one thing wrong in it, and the same with nothing wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from chaos.checkers import LONGEST_WAIT, Evidence, judge
from chaos.dev.lines import Asked, Granted, Line, Trouble, Yielded
from chaos.history import Recorded
from chaos.observer import Seen
from ledger.keys import Kind, Place
from ledger.records import Phase, Pinned, Ticket, TicketState, Turn
from nodeagent.backends.sim.log import Event

_PIDS = {"a": 1, "b": 2, "": 3}


def event(name: str, at: int, job: str, **more: str) -> Event:
    return Event(name=name, at=at, boot_at=at, job=job, pid=_PIDS[job], start=1, device="d", **more)  # type: ignore[arg-type]


def recorded(revision: int, phase: Phase, epoch: int, token: int) -> Recorded:
    return Recorded(revision, revision * 10, "demo", Turn(phase=phase, epoch=epoch, token=token))


def ticket(revision: int, job: str, create: int, state: TicketState | None, token: int = 0) -> Seen:
    value = None if state is None else Ticket(state=state, token=token)
    return Seen(revision, revision * 10, Place(Kind.TICKET, group="demo", name=job), create, value)


EVENTS = [
    event("attach", 10, "a"),
    event("run", 10, "a"),
    event("touch-begin", 12, "a"),
    event("touch-end", 30, "a"),
    event("stop", 40, "a", why="locked"),
    event("checkpoint-begin", 41, "a", checksum="x"),
    event("checkpoint-end", 42, "a", checksum="x"),
    event("attach", 50, "b"),
    event("run", 50, "b"),
    event("touch-begin", 51, "b"),
    event("touch-end", 60, "b"),
]
TURNS = [
    recorded(1, Phase.HELD, 1, 1),
    recorded(4, Phase.PREPARING, 4, 1),
    recorded(5, Phase.HELD, 4, 5),
]
TICKETS = [
    ticket(1, "a", 1, TicketState.WAITING),
    ticket(2, "a", 1, TicketState.GRANTED, 1),
    ticket(3, "b", 3, TicketState.WAITING),
    ticket(4, "a", 0, None),
    ticket(5, "b", 3, TicketState.GRANTED, 5),
]
JOBS: dict[str, tuple[Line, ...]] = {
    "a": (Granted(11, 1, 0.0, False), Yielded(35, 1, 5, 11, 1, True)),
    "b": (Granted(50, 5, 0.0, False), Yielded(65, 5, 30, 50, 1, True)),
}
SOUND = Evidence({"n0": EVENTS}, TURNS, TICKETS, JOBS)


def promises(evidence: Evidence) -> set[str]:
    return {one.promise for one in judge(evidence)}


def test_sound_evidence_has_no_violation() -> None:
    assert judge(SOUND) == []


def test_two_jobs_that_were_able_to_run_at_once_are_an_overlap() -> None:
    early = [event("run", 35, "b") if one.name == "run" and one.job == "b" else one for one in EVENTS]
    assert promises(replace(SOUND, devices={"n0": sorted(early, key=lambda one: one.at)})) == {"one at a time"}


def test_who_belongs_to_no_job_is_not_the_locks() -> None:
    devices = {"n0": [*EVENTS[:2], event("run", 11, ""), *EVENTS[2:], event("stop", 61, "")]}
    assert judge(replace(SOUND, devices=devices)) == []


def test_bytes_that_come_back_changed_are_lost_state() -> None:
    restored = [*EVENTS, event("restore-begin", 70, "a", checksum="x"), event("restore-end", 71, "a", checksum="y")]
    assert promises(replace(SOUND, devices={"n0": restored})) == {"state is kept"}


def test_a_job_that_finds_its_state_changed_counts() -> None:
    found = {"a": (JOBS["a"][0], Yielded(35, 1, 5, 11, 1, intact=False)), "b": JOBS["b"]}
    assert promises(replace(SOUND, jobs=found)) == {"state is kept"}


def test_a_holder_that_is_stopped_between_its_kernels_was_interrupted() -> None:
    stopped = sorted([*EVENTS, event("stop", 15, "a", why="locked"), event("run", 20, "a")], key=lambda one: one.at)
    assert "the holder runs" in promises(replace(SOUND, devices={"n0": stopped}))


def test_another_job_on_another_node_during_a_turn_is_noticed() -> None:
    elsewhere = [event("run", 20, "b"), event("stop", 25, "b", why="locked")]
    kernel = [event("touch-begin", 22, "a"), event("touch-end", 28, "a")]
    both = sorted([*elsewhere, *kernel], key=lambda one: one.at)
    assert promises(replace(SOUND, devices={"n0": EVENTS, "n1": both})) == {"the holder alone"}


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(recorded(9, Phase.HELD, 4, 3), id="a token that falls"),
        pytest.param(recorded(9, Phase.IDLE, 2, 5), id="an epoch that falls"),
    ],
)
def test_numbers_that_fall_are_noticed(after: Recorded) -> None:
    assert promises(replace(SOUND, turns=[*TURNS, after])) == {"numbers grow"}


def test_a_token_given_out_twice_is_noticed() -> None:
    again = [*TURNS, recorded(7, Phase.IDLE, 4, 5), recorded(8, Phase.HELD, 4, 5)]
    assert promises(replace(SOUND, turns=again)) == {"numbers grow"}


def test_a_token_that_no_turn_gave_out_is_noticed() -> None:
    jobs = {**JOBS, "b": (Granted(50, 6, 0.0, False),)}
    assert promises(replace(SOUND, jobs=jobs)) == {"numbers grow"}


def test_who_is_granted_before_an_earlier_place_has_jumped_the_queue() -> None:
    waits = [ticket(2, "c", 2, TicketState.WAITING), ticket(9, "c", 2, TicketState.GRANTED, 9)]
    tickets = sorted([*TICKETS, *waits], key=lambda one: one.revision)
    assert promises(replace(SOUND, tickets=tickets)) == {"no place lost"}


def test_a_job_that_cannot_be_taken_off_may_go_first() -> None:
    waits = [ticket(2, "c", 2, TicketState.WAITING), ticket(9, "c", 2, TicketState.GRANTED, 9)]
    tickets = sorted([*TICKETS, *waits], key=lambda one: one.revision)
    kept = TURNS[1].turn
    assert kept is not None
    for job, wrong in (("b", set[str]()), ("a", {"no place lost"})):
        pinned = replace(TURNS[1], turn=structs.replace(kept, pinned=Pinned(job=job, reason="it cannot be saved")))
        assert promises(replace(SOUND, turns=[TURNS[0], pinned, TURNS[2]], tickets=tickets)) == wrong


def test_an_earlier_place_that_was_given_up_before_the_grant_was_not_jumped() -> None:
    waits = [ticket(2, "c", 2, TicketState.WAITING), ticket(4, "c", 0, None)]
    tickets = sorted([*TICKETS, *waits], key=lambda one: one.revision)
    assert judge(replace(SOUND, tickets=tickets, excused=frozenset({"c"}))) == []
    assert promises(replace(SOUND, tickets=tickets)) == {"no place lost"}


def test_trouble_of_a_job_that_nobody_harmed_counts() -> None:
    trouble: dict[str, tuple[Line, ...]] = {**JOBS, "b": (*JOBS["b"], Trouble(70, "TURN_LOST", "lost"))}
    assert promises(replace(SOUND, jobs=trouble)) == {"jobs see nothing"}
    assert judge(replace(SOUND, jobs=trouble, excused=frozenset({"b"}))) == []


def test_who_waits_too_long_was_forgotten() -> None:
    late = int((LONGEST_WAIT + 1) * 1e9)
    waited: dict[str, tuple[Line, ...]] = {**JOBS, "b": (Asked(50), Granted(50 + late, 5, 0.0, False))}
    assert promises(replace(SOUND, jobs=waited)) == {"delays are bounded"}
    assert judge(replace(SOUND, jobs=waited, excused=frozenset({"b"}))) == []
