# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in COMMIT: who is at fault, and what is left."""

from __future__ import annotations

import os
import signal

import pytest

from chaos.faults.family import AGENT_HELPER, helpers
from ledger.records import Failure, Outcome, Process, ProcessState
from nodeagent.backends.sim import log
from nodeagent.backends.sim.faults import FaultKind
from tests.nodeagent.director import COMMIT, PREPARE, RELEASE, Director
from tests.nodeagent.simnode import end, stopped, until

SESSION = Process("boot", 1, 1)
OTHER = Process("boot", 2, 2)


async def test_not_saved_then_put_back(boss: Director) -> None:
    boss.start_agent()
    one = boss.node.workload("a").attach("SIM-0")
    two = boss.node.workload("a").attach("SIM-0")
    boss.node.driver.fault(FaultKind.CHECKPOINT_FAILS, pid=two.pid)
    await boss.ask(PREPARE, 1, "b")
    failed = await boss.ask(COMMIT, 1, "b")
    assert (failed.outcome, failed.failure, failed.job) == (Outcome.FAILED, Failure.NOT_SAVED, "a")
    states = {each.process.pid: each.state for each in await boss.records("a") if each.process}
    assert states == {one.pid: ProcessState.PARKED, two.pid: ProcessState.LOCKED}

    await boss.switch(2, "a")
    assert one.intact("SIM-0")
    assert two.intact("SIM-0")


async def test_what_breaks_is_killed_and_named(boss: Director) -> None:
    boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    boss.node.driver.fault(FaultKind.CHECKPOINT_BREAKS, pid=a.pid)
    await boss.ask(PREPARE, 1, "b")
    process = a.process
    failed = await boss.ask(COMMIT, 1, "b")
    assert (failed.outcome, failed.failure, failed.job) == (Outcome.FAILED, Failure.PROCESS_LOST, "a")
    assert failed.lost == (process,)
    assert a.wait() < 0
    await boss.switch(2, "b")


@pytest.mark.parametrize("step", ["agent.prepare.checked", "agent.commit.locked", "agent.commit.begun"])
async def test_who_ends_by_itself_is_nobodys_fault(boss: Director, step: str) -> None:
    """A job comes to its end just when it is to be locked, or saved: the switch goes on, and nobody is blamed."""
    agent = boss.start_agent("--ttl", "60", failpoints=f"{step}=stop")
    ends = boss.node.workload("a").attach("SIM-0")
    revision = await boss.tell(PREPARE, 1, "b")
    if step.startswith("agent.commit"):
        assert (await boss.answer(revision)).outcome is Outcome.PREPARED
        revision = await boss.tell(COMMIT, 1, "b")
    until(lambda: stopped(agent.pid), f"the agent stands at {step}")
    ends.kill()
    ends.wait()
    agent.send_signal(signal.SIGCONT)
    answer = await boss.answer(revision)
    good = Outcome.COMMITTED if step.startswith("agent.commit") else Outcome.PREPARED
    assert (answer.outcome, answer.why) == (good, "")
    assert {each.state for each in await boss.records("a")} <= {ProcessState.FAILED}


async def test_who_ends_when_it_is_to_be_resumed_is_nobodys_fault(boss: Director) -> None:
    """As when the job's client is killed just then: the switch goes on, and the job is not quarantined."""
    points = boss.node.folder / "points"
    points.mkdir()
    agent = boss.start_agent("--ttl", "60", failpoints=f"@{points}")
    ends = boss.node.workload("a").attach("SIM-0")
    await boss.switch(1, "b")
    await boss.ask(PREPARE, 2, "a")
    (points / "agent_helper.unlock.asked").write_text("stop", encoding="ascii")
    revision = await boss.tell(COMMIT, 2, "a")
    waiting: list[int] = []

    def stands() -> bool:
        waiting[:] = [pid for pid in helpers(agent.pid, AGENT_HELPER) if stopped(pid)]
        return bool(waiting)

    until(stands, "a helper stands before it resumes what has been restored")
    process = ends.process
    ends.kill()
    ends.wait()
    os.kill(waiting[0], signal.SIGCONT)
    answer = await boss.answer(revision)
    assert (answer.outcome, answer.why, answer.lost) == (Outcome.COMMITTED, "", (process,))


@pytest.mark.parametrize("fault", [FaultKind.RESTORE_FAILS, FaultKind.RESTORE_BREAKS])
async def test_not_restored_leaves_the_devices_to_the_next(boss: Director, fault: FaultKind) -> None:
    boss.start_agent()
    boss.node.workload("a").attach("SIM-0")
    bad = boss.node.workload("a").attach("SIM-0")
    await boss.switch(1, "b")
    b = boss.node.workload("b").attach("SIM-0")
    boss.node.driver.fault(fault, pid=bad.pid)
    await boss.ask(PREPARE, 2, "a")
    failed = await boss.ask(COMMIT, 2, "a")
    assert (failed.outcome, failed.failure, failed.job) == (Outcome.FAILED, Failure.NOT_RESTORED, "a")
    await boss.switch(3, "b")
    assert b.intact("SIM-0")
    assert log.overlaps(boss.node.events()) == []


async def test_what_can_never_be_restored_is_killed_and_its_host_memory_is_free(boss: Director) -> None:
    boss.start_agent("--host-memory", "1250")
    a = boss.node.workload("a").attach("SIM-0", nominal=600)
    process = a.process
    await boss.switch(1, "b")
    b = boss.node.workload("b").attach("SIM-0", nominal=600)
    boss.node.driver.fault(FaultKind.RESTORE_NEVER, pid=a.pid)
    await boss.ask(PREPARE, 2, "a")
    failed = await boss.ask(COMMIT, 2, "a")
    assert (failed.outcome, failed.failure, failed.job) == (Outcome.FAILED, Failure.NOT_RESTORED, "a")
    assert failed.lost == (process,)
    assert a.wait() == -signal.SIGKILL
    await boss.switch(3, "b")
    boss.node.workload("b").attach("SIM-0", nominal=100)
    # Both of b fit only into what a no longer has.
    await boss.switch(4, "c")
    await boss.switch(5, "b")
    assert b.intact("SIM-0")


async def test_what_may_yet_be_restored_is_left_parked(boss: Director) -> None:
    boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    await boss.switch(1, "")
    boss.node.driver.fault(FaultKind.RESTORE_FAILS, pid=a.pid, times=1)
    await boss.ask(PREPARE, 2, "a")
    failed = await boss.ask(COMMIT, 2, "a")
    assert (failed.failure, failed.lost) == (Failure.NOT_RESTORED, ())
    assert (await boss.switch(3, "a")).restored
    assert a.intact("SIM-0")


async def test_rule_13_what_came_onto_the_device_since_keeps_the_incoming_job_from_running(boss: Director) -> None:
    first = boss.start_agent()
    a, b, late = boss.node.workload("a"), boss.node.workload("b").attach("SIM-0"), boss.node.workload("c")
    await boss.switch(1, "a")
    end(first)
    a.attach("SIM-0")
    # Registered for longer than it will stand still.
    agent = boss.start_agent("--ttl", "60", failpoints="agent.commit.restored=stop")
    boss.node.driver.fault(FaultKind.RESTORE_FAILS, pid=b.pid, times=1)
    await boss.ask(PREPARE, 2, "b")
    assert (await boss.ask(COMMIT, 2, "b")).failure is Failure.NOT_RESTORED

    await boss.ask(PREPARE, 3, "a")
    revision = await boss.tell(COMMIT, 3, "a")
    until(lambda: stopped(agent.pid), "a is restored and does not run yet")
    late.attach("SIM-0")
    agent.send_signal(signal.SIGCONT)
    failed = await boss.answer(revision)
    assert (failed.outcome, failed.failure, failed.job) == (Outcome.FAILED, Failure.NOT_SAVED, "c")
    a.send("touch SIM-0 1")
    assert a.blocked()
    late.do("touch SIM-0 1")

    # A release unlocks what its own epoch has locked, not what that COMMIT, or the one before it, had.
    assert (await boss.ask(RELEASE, 4, keep=True)).outcome is Outcome.RELEASED
    assert a.blocked()
    end(agent)
    boss.start_agent()
    await boss.switch(5, "a")
    assert a.answer()["kernels"] == 1
    assert log.overlaps(boss.node.events()) == []


@pytest.mark.parametrize(
    "fault",
    [
        FaultKind.LOCK_REFUSED,
        FaultKind.LOCK_HANGS,
        FaultKind.CHECKPOINT_FAILS,
        FaultKind.NCCL,
        FaultKind.MEMORY_NOT_FREED,
    ],
)
async def test_kill_always_ends_it(boss: Director, fault: FaultKind) -> None:
    boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    process = a.process
    boss.node.driver.fault(fault, job="a")
    prepared = await boss.ask(PREPARE, 1, "", kill=True, allowed_ms=4000)
    assert prepared.outcome is Outcome.PREPARED
    committed = await boss.ask(COMMIT, 1, "", kill=True)
    assert committed.outcome is Outcome.COMMITTED
    assert a.wait() < 0
    assert process in (*prepared.lost, *committed.lost)
    assert boss.node.driver.use(["SIM-0"])[0].used_bytes == 0


async def test_memory_that_is_not_freed_is_not_believed(boss: Director) -> None:
    boss.start_agent()
    boss.node.workload("a").attach("SIM-0")
    boss.node.driver.fault(FaultKind.MEMORY_NOT_FREED, job="a")
    await boss.ask(PREPARE, 1, "b")
    failed = await boss.ask(COMMIT, 1, "b")
    assert (failed.outcome, failed.failure, failed.job) == (Outcome.FAILED, Failure.NOT_SAVED, "a")
    assert "still in use" in failed.why


async def test_a_parked_process_that_is_gone_is_named_and_the_rest_comes_back(boss: Director) -> None:
    boss.start_agent()
    one = boss.node.workload("a").attach("SIM-0")
    two = boss.node.workload("a").attach("SIM-0")
    gone = one.process
    await boss.switch(1, "b")
    one.kill()
    one.wait()
    committed = await boss.switch(2, "a")
    assert (committed.lost, committed.restored) == ((gone,), True)
    assert two.intact("SIM-0")
    assert [each.process.pid for each in await boss.records("a") if each.process] == [two.pid]
    assert (await boss.switch(3, "b")).lost == ()


async def test_lost_processes_come_back_for_their_own_session_alone(boss: Director) -> None:
    boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    await boss.switch(1, "b", lost_job="a", lost_process=SESSION)
    (record,) = await boss.records("a")
    assert record.lost_session == SESSION
    assert not (await boss.switch(2, "a", on_process=OTHER)).restored
    a.send("touch SIM-0 1")
    assert a.blocked()
    assert (await boss.switch(3, "a", on_process=SESSION)).restored
    assert a.answer()["kernels"] == 1
    (record,) = await boss.records("a")
    assert record.lost_session is None


async def test_a_lost_resident_is_taken_off_for_its_own_jobs_new_session(boss: Director) -> None:
    boss.start_agent()
    old = boss.node.workload("a").attach("SIM-0")
    new = boss.node.workload("a")
    until(lambda: new.process.start_time > old.process.start_time, "clocks tick")
    new.attach("SIM-0")
    await boss.switch(1, "a", lost_job="a", lost_process=SESSION, on_process=new.process)
    new.do("touch SIM-0 1")
    old.send("touch SIM-0 1")
    assert old.blocked()


async def test_what_is_parked_without_a_session_is_killed_in_the_end(boss: Director) -> None:
    boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    await boss.switch(1, "b", lost_job="a", lost_process=SESSION, parked_ttl_ms=1500)
    assert a.running
    assert a.wait() < 0
    await boss.recorded(lambda record: not record.of("a"))


async def test_a_process_out_of_its_turn_is_seen_and_taken_off_by_the_next_switch(boss: Director) -> None:
    boss.start_agent()
    boss.node.workload("a").attach("SIM-0")
    await boss.switch(1, "a")
    b = boss.node.workload("b").attach("SIM-0")
    record = await boss.recorded(lambda record: record.of("b"))
    assert [one.out_of_turn for one in record.of("b")] == [True]
    assert [one.out_of_turn for one in record.of("a")] == [False]
    stranger = boss.node.workload("").attach("SIM-0")
    await boss.recorded(lambda record: record.strangers == (stranger.process,))
    stranger.end()
    await boss.recorded(lambda record: not record.strangers)
    await boss.switch(2, "a")
    b.send("touch SIM-0 1")
    assert b.blocked()
