# SPDX-License-Identifier: Apache-2.0
"""The agent is killed at each step, and its next life puts right what was left."""

from __future__ import annotations

import signal

import pytest

from ledger.records import Outcome, ProcessState
from nodeagent.backends.sim import log
from nodeagent.backends.sim.faults import FaultKind
from tests.nodeagent.director import COMMIT, PREPARE, RELEASE, Director, kill_helpers
from tests.nodeagent.simnode import DEADLINE, Workload, stopped, until

STEPS = ["locked", "begun", "saved", "free", "restored", "resumed", "acked"]


async def two_jobs(boss: Director) -> tuple[Workload, Workload]:
    """``a`` is parked, ``b`` is on; both have run a kernel."""
    agent = boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    a.do("touch SIM-0 1")
    await boss.switch(1, "b")
    b = boss.node.workload("b").attach("SIM-0")
    b.do("touch SIM-0 1")
    await boss.recorded(lambda record: record.of("b"))
    agent.kill()
    agent.wait()
    return a, b


@pytest.mark.parametrize("step", STEPS)
async def test_commit_is_finished_by_the_next_life(boss: Director, step: str) -> None:
    a, b = await two_jobs(boss)
    agent = boss.start_agent(failpoints=f"agent.commit.{step}=kill")
    prepared = await boss.ask(PREPARE, 2, "a")
    assert prepared.outcome is Outcome.PREPARED
    revision = await boss.tell(COMMIT, 2, "a")
    assert agent.wait(DEADLINE) == -signal.SIGKILL

    boss.start_agent()
    committed = await boss.answer(revision)
    assert (committed.outcome, committed.restored) == (Outcome.COMMITTED, True)
    assert a.intact("SIM-0")
    await boss.switch(3, "b")
    assert b.intact("SIM-0")
    assert log.overlaps(boss.node.events()) == []
    assert log.lost_bytes(boss.node.events()) == []


@pytest.mark.parametrize("step", ["checked", "locked", "acked"])
async def test_prepare_is_answered_by_the_next_life_and_can_be_released(boss: Director, step: str) -> None:
    a, b = await two_jobs(boss)
    agent = boss.start_agent(failpoints=f"agent.prepare.{step}=kill")
    revision = await boss.tell(PREPARE, 2, "a")
    assert agent.wait(DEADLINE) == -signal.SIGKILL
    boss.start_agent()
    assert (await boss.answer(revision)).outcome is Outcome.PREPARED
    assert (await boss.ask(RELEASE, 2, "b")).outcome is Outcome.RELEASED
    b.do("touch SIM-0 1")
    a.send("touch SIM-0 1")
    assert a.blocked()


async def test_a_helper_without_its_agent_unlocks(boss: Director) -> None:
    boss.start_agent(failpoints="agent.prepare.locked=kill")
    a = boss.node.workload("a").attach("SIM-0")
    await boss.tell(PREPARE, 1, "b")
    until(lambda: "locked" in [one.why for one in boss.node.events()], "the process is locked")
    a.do("touch SIM-0 1")


async def test_what_was_locked_is_unlocked_before_etcd_is_asked(boss: Director) -> None:
    """The helpers die, too, so that only the next life can unlock; and that one cannot reach etcd."""
    agent = boss.start_agent(failpoints="agent.prepare.locked=stop")
    a = boss.node.workload("a").attach("SIM-0")
    await boss.tell(PREPARE, 1, "b")
    until(lambda: "locked" in [one.why for one in boss.node.events()], "the process is locked")
    kill_helpers(boss.node.folder / "state")
    agent.kill()
    agent.wait()
    assert boss.node.driver.state(a.pid) is ProcessState.LOCKED
    boss.endpoint = "127.0.0.1:1"
    boss.start_agent()
    a.do("touch SIM-0 1")


async def test_the_next_life_waits_for_a_helper_in_mid_checkpoint(boss: Director) -> None:
    a, _ = await two_jobs(boss)
    agent = boss.start_agent()
    await boss.ask(PREPARE, 2, "a")
    boss.node.driver.fault(FaultKind.SLOW, job="b", times=1, ms=4000)
    revision = await boss.tell(COMMIT, 2, "a")
    until(lambda: boss.node.events()[-1].name == "checkpoint-begin", "the checkpoint has begun")
    agent.kill()
    agent.wait()

    boss.start_agent(log="second.log")
    assert (await boss.answer(revision)).outcome is Outcome.COMMITTED
    assert "Waiting for the lock of device SIM-0, held by [" in boss.agent_log("second.log")
    assert a.intact("SIM-0")
    names = [(one.name, one.job) for one in boss.node.events()]
    assert names.count(("checkpoint-begin", "b")) == 1
    assert names.index(("checkpoint-end", "b")) < names.index(("restore-begin", "a"))


async def test_a_second_agent_waits_and_then_takes_over(boss: Director) -> None:
    first = boss.start_agent()
    one = await boss.registered()
    boss.start_agent(log="second.log")
    until(lambda: "Waiting for the lock" in boss.agent_log("second.log"), "the second waits")
    a = boss.node.workload("a").attach("SIM-0")
    await boss.switch(1, "b")
    first.send_signal(signal.SIGTERM)
    assert first.wait(DEADLINE) == 0
    committed = await boss.switch(2, "a")
    assert committed.restored
    assert a.intact("SIM-0")
    assert one.boot_id == (await boss.registered()).boot_id


async def test_rule_15_what_a_begun_commit_locked_is_left_to_that_commit(boss: Director) -> None:
    """As above, but COMMIT had begun: without etcd nothing is unlocked; with it the COMMIT is finished."""
    agent = boss.start_agent(failpoints="agent.commit.begun=stop")
    a = boss.node.workload("a").attach("SIM-0")
    await boss.ask(PREPARE, 1, "b")
    revision = await boss.tell(COMMIT, 1, "b")
    until(lambda: stopped(agent.pid), "the agent stands at its failpoint")
    kill_helpers(boss.node.folder / "state")
    agent.kill()
    agent.wait()
    endpoint, boss.endpoint = boss.endpoint, "127.0.0.1:1"
    agent = boss.start_agent(log="second.log")
    # It has got as far as etcd, so whatever it were to unlock before that is unlocked.
    until(lambda: "cannot be ended yet" in boss.agent_log("second.log"), "it has asked etcd in vain")
    assert "COMMIT of epoch 1 is to be finished" in boss.agent_log("second.log")
    a.send("touch SIM-0 1")
    assert a.blocked()
    agent.kill()
    agent.wait()
    boss.endpoint = endpoint
    boss.start_agent()
    assert (await boss.answer(revision)).outcome is Outcome.COMMITTED
    assert [one.state for one in await boss.records("a")] == [ProcessState.PARKED]


async def test_rule_9_what_is_saved_is_in_the_ledger_before(boss: Director) -> None:
    """Also a process that came after PREPARE."""
    agent = boss.start_agent(failpoints="agent.commit.begun=kill")
    one = boss.node.workload("a").attach("SIM-0")
    await boss.ask(PREPARE, 1, "b")
    two = boss.node.workload("a").attach("SIM-0")
    await boss.tell(COMMIT, 1, "b")
    assert agent.wait(DEADLINE) == -signal.SIGKILL
    recorded = {each.process.pid for each in await boss.records("a") if each.process}
    assert recorded == {one.pid, two.pid}
    assert not [each for each in boss.node.events() if each.name == "checkpoint-begin"]
