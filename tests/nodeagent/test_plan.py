# SPDX-License-Identifier: Apache-2.0
"""The pure core: what a directive means for what is found. No process, no etcd."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ledger.records import (
    Directive,
    Fault,
    JobProcesses,
    Process,
    Processes,
    ProcessRecord,
    ProcessState,
)
from nodeagent import plan
from nodeagent.backends.base import Findings, Found
from nodeagent.backends.driver import DeviceUse, Verdict
from nodeagent.plan import Scene

RUNNING, LOCKED, PARKED, FAILED = ProcessState
OLD, NEW = Process("boot", 10, 100), Process("boot", 11, 200)
USE = (DeviceUse("D", 0, 1000, ()),)


def process(pid: int) -> Process:
    return Process("boot", pid, pid)


def found(job: str, pid: int, state: ProcessState = RUNNING, *, device: str = "D") -> Found:
    return Found(process(pid), job, state, () if state is PARKED else (device,))


def scene(*there: Found, on: str = "b", records: Processes | None = None, **more: object) -> Scene:
    directive = Directive(on=on, **more)  # type: ignore[arg-type]
    return Scene(directive, records or Processes(), Findings(there, (), USE))


def recorded(*ones: tuple[str, int, ProcessState], lost: Process | None = None, size: int = 0) -> Processes:
    jobs: dict[str, list[ProcessRecord]] = {}
    for job, pid, state in ones:
        jobs.setdefault(job, []).append(ProcessRecord(process(pid), state, size, lost))
    return Processes(jobs=tuple(JobProcesses(job, tuple(each)) for job, each in jobs.items()))


def pids(ones: tuple[Found, ...]) -> list[int]:
    return [one.process.pid for one in ones]


@pytest.mark.parametrize(
    ("one", "out", "stays", "back"),
    [
        (found("a", 1, RUNNING), [1], [], []),
        (found("a", 1, LOCKED), [1], [], []),
        (found("a", 1, FAILED), [1], [], []),
        (found("a", 1, PARKED), [], [], []),
        (found("b", 1, RUNNING), [], [1], []),
        (found("b", 1, LOCKED), [], [1], []),
        (found("b", 1, FAILED), [], [], []),
        (found("b", 1, PARKED), [], [], [1]),
    ],
)
def test_who_goes_who_stays_who_comes_back(one: Found, out: list[int], stays: list[int], back: list[int]) -> None:
    """Rules 8 and 38."""
    view = scene(one)
    assert (pids(plan.outgoing(view)), pids(plan.staying(view)), pids(plan.restorable(view))) == (out, stays, back)


@pytest.mark.parametrize(
    ("lost", "served", "comes_back"),
    [(None, None, True), (None, NEW, True), (OLD, OLD, True), (OLD, NEW, False), (OLD, None, False)],
)
def test_rule_5_lost_processes_return_only_to_their_session(
    lost: Process | None, served: Process | None, comes_back: bool
) -> None:
    view = scene(found("b", 1, PARKED), records=recorded(("b", 1, PARKED), lost=lost), on_process=served)
    assert bool(plan.restorable(view)) is comes_back


@pytest.mark.parametrize(
    ("worker", "served", "goes"),
    [
        (Process("boot", 1, 150), NEW, True),  # of the lost session
        (Process("boot", 1, 250), NEW, False),  # started by the one that is served
        (Process("boot", 1, 250), OLD, False),  # the same session: nothing was lost for it
        (Process("boot", 1, 250), None, False),  # an old resident is put back
        (Process("boot", 1, 250), replace(NEW, boot_id="elsewhere"), True),  # no clock in common
        (NEW, NEW, False),
    ],
)
def test_rule_5_a_lost_resident_goes_although_its_job_comes(
    worker: Process, served: Process | None, goes: bool
) -> None:
    one = Found(worker, "b", RUNNING, ("D",))
    view = scene(one, lost_job="b", lost_process=OLD, on_process=served)
    assert bool(plan.outgoing(view)) is goes
    assert bool(plan.staying(view)) is not goes
    if goes:
        parked = replace(view, findings=Findings((replace(one, state=PARKED),), (), USE))
        assert plan.restorable(parked) == ()


def test_rule_5_a_job_that_was_evicted_after_its_turn_has_lost_no_process() -> None:
    """No session is named: what it had comes back to the next one, as it does after another job's turn."""
    one = Found(Process("boot", 1, 150), "b", PARKED, ("D",))
    assert plan.restorable(scene(one, lost_job="b", lost_process=None, on_process=NEW)) == (one,)


def test_rule_5_what_is_about_to_be_saved_is_on_record_with_the_session_that_was_lost() -> None:
    """Its COMMIT may be gone by the time that it is parked."""
    there = found("a", 1, LOCKED)
    records = plan.processes(scene(there, found("b", 2, LOCKED), lost_job="a", lost_process=OLD))
    assert [one.lost_session for job in records.jobs for one in job.processes] == [OLD, None]
    for state, lost in ((PARKED, OLD), (LOCKED, OLD), (RUNNING, None)):
        seen = plan.between_switches(records, Findings((replace(there, state=state),), (), USE), None)
        assert [one.lost_session for one in seen.of("a")] == [lost]


def test_rule_9_what_was_off_the_devices_and_has_ended_is_lost() -> None:
    records = recorded(("b", 1, PARKED), ("b", 2, LOCKED), ("b", 3, RUNNING), ("b", 4, PARKED), ("a", 5, PARKED))
    view = scene(found("b", 4, PARKED), records=records)
    assert plan.gone(view, "b") == (process(1), process(2))


@pytest.mark.parametrize(
    ("one", "on", "kill", "fault"),
    [
        (found("a", 1, device="E"), "b", False, Fault.OUTGOING),
        (found("b", 1, device="E"), "b", False, Fault.INCOMING),
        (found("b", 1, FAILED), "b", False, Fault.INCOMING),
        (found("b", 1, FAILED), "b", True, None),
        (found("a", 1, FAILED), "b", False, None),
        (found("a", 1), "b", False, None),
    ],
)
def test_what_is_there_may_forbid_a_switch(one: Found, on: str, kill: bool, fault: Fault | None) -> None:
    """Rule 12, among others."""
    view = replace(scene(one, on=on, kill=kill), foreign=frozenset("E"))
    refusal = plan.judge_findings(view)
    assert (refusal.fault if refusal else None) is fault


@pytest.mark.parametrize("kill", [False, True])
def test_rule_8_a_stranger_is_the_nodes_fault(kill: bool) -> None:
    view = Scene(Directive(on="b", kill=kill), Processes(), Findings((), (process(7),), USE))
    refusal = plan.judge_findings(view)
    assert refusal is not None
    assert (refusal.fault, refusal.job) == (Fault.NODE, "")


@pytest.mark.parametrize(
    ("state", "kill", "refused", "short", "refuses", "dies"),
    [
        (RUNNING, False, "no", False, True, False),
        (RUNNING, True, "no", False, False, True),
        (RUNNING, True, "", True, False, True),
        (RUNNING, True, "", False, False, False),
        (RUNNING, False, "", True, False, False),
        (FAILED, False, "no", False, False, True),
    ],
)
def test_what_cannot_be_saved_is_refused_or_dies(
    state: ProcessState, kill: bool, refused: str, short: bool, refuses: bool, dies: bool
) -> None:
    view = scene(found("a", 1, state), kill=kill)
    verdicts = {process(1): Verdict(refused, 5)}
    assert bool(plan.judge_checks(view, verdicts)) is refuses
    assert bool(plan.doomed(view, verdicts, short=short)) is dies


@pytest.mark.parametrize(("size", "refuses"), [(500, False), (501, True)])
def test_the_devices_must_hold_all_of_the_incoming_job(size: int, refuses: bool) -> None:
    there = (found("b", 1, PARKED), found("b", 2, RUNNING), found("a", 3, RUNNING))
    records = recorded(("b", 1, PARKED), ("b", 2, RUNNING), ("a", 3, RUNNING), size=size)
    assert bool(plan.judge_incoming(scene(*there, records=records))) is refuses


@pytest.mark.parametrize(
    ("there", "used", "free"),
    [
        ((), 10, True),
        ((), 11, False),
        ((found("b", 1),), 900, True),  # what is in use is the incoming job's
        ((found("a", 1),), 0, False),
        ((found("a", 1, LOCKED),), 0, False),
        ((found("a", 1, PARKED),), 0, True),
    ],
)
def test_rule_8_free_is_what_the_driver_says(there: tuple[Found, ...], used: int, free: bool) -> None:
    use = (DeviceUse("D", used, 1000, ()),)
    view = replace(scene(), findings=Findings(there, (), use))
    assert (plan.judge_free(view, 10) is None) is free


def test_the_record_of_a_switch_of_a_lost_resident() -> None:
    """Rule 5: what this switch parked is the lost session's; what was parked before stays whose it was."""
    records = recorded(("a", 1, LOCKED), ("a", 2, PARKED), ("b", 3, PARKED), ("b", 4, PARKED), size=8)
    there = (found("a", 1, PARKED), found("a", 2, PARKED), found("b", 3, RUNNING))
    view = scene(*there, records=records, lost_job="a", lost_process=OLD)
    after = plan.processes(view, done=True)
    assert after.of("a") == (ProcessRecord(process(1), PARKED, 8, OLD), ProcessRecord(process(2), PARKED, 8))
    assert after.of("b") == (ProcessRecord(process(3), RUNNING, 8),)  # 4 is gone, and was named
    # 4 has ended and is not yet named: it holds nothing any more, and its job is told at its next turn.
    unnamed = plan.processes(view)
    assert unnamed.of("b")[-1] == ProcessRecord(process(4), FAILED, 0)
    assert plan.gone(scene(records=unnamed), "b") == (process(3), process(4))[1:]


@pytest.mark.parametrize(
    ("before", "after", "restored"),
    [(PARKED, RUNNING, True), (PARKED, LOCKED, False), (RUNNING, RUNNING, False), (LOCKED, RUNNING, False)],
)
def test_brought_back_is_parked_before_and_running_now(
    before: ProcessState, after: ProcessState, restored: bool
) -> None:
    assert plan.brought_back(scene(found("b", 1, after), records=recorded(("b", 1, before)))) is restored


@pytest.mark.parametrize(("on", "out"), [("a", [False, True]), ("", [True, True]), (None, [False, False])])
def test_between_switches_what_runs_out_of_its_turn_is_marked(on: str | None, out: list[bool]) -> None:
    findings = Findings((found("a", 1), found("b", 2), found("c", 3, PARKED)), (process(9),), USE)
    records = plan.between_switches(Processes(), findings, on)
    assert [records.of(job)[0].out_of_turn for job in "ab"] == out
    assert not records.of("c")[0].out_of_turn
    assert records.strangers == (process(9),)


@pytest.mark.parametrize(
    ("state", "lost", "kept"), [(PARKED, None, True), (PARKED, OLD, False), (RUNNING, None, False)]
)
def test_between_switches_what_has_ended_is_kept_only_if_it_has_to_be_named(
    state: ProcessState, lost: Process | None, kept: bool
) -> None:
    records = plan.between_switches(recorded(("a", 1, state), lost=lost), Findings((), (), USE), "b")
    assert bool(records.of("a")) is kept


@pytest.mark.parametrize(
    ("there", "unlocked"),
    [
        ((found("a", 1, LOCKED),), [1]),
        ((found("a", 1, LOCKED), found("a", 2, RUNNING)), [1]),
        ((found("a", 1, LOCKED), found("b", 2, RUNNING)), []),
        ((found("a", 1, LOCKED), found("b", 2, PARKED)), [1]),
        ((found("a", 1, LOCKED), found("b", 2, LOCKED)), []),
    ],
)
def test_a_late_lock_is_undone_only_where_no_other_job_can_run(there: tuple[Found, ...], unlocked: list[int]) -> None:
    assert pids(plan.to_unlock(Findings(there, (), USE))) == unlocked


def test_evidence_is_bounded() -> None:
    assert len(plan.evidence(scene(*(found("a", pid) for pid in range(1, 99))), {})) == plan.EVIDENCE_LIMIT


def test_parked_bytes_counts_what_is_parked_and_still_there() -> None:
    there = recorded(("a", 1, PARKED), ("a", 2, RUNNING), ("b", 3, PARKED), ("b", 4, PARKED), size=5)
    assert plan.parked_bytes([there], lambda some: [one for one in some if one.pid != 4]) == 10
