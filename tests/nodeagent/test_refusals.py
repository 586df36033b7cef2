# SPDX-License-Identifier: Apache-2.0
"""What the agent refuses, and whose fault it says that is. Nothing refused is saved, and all goes on as before."""

from __future__ import annotations

from ledger.records import Fault, Outcome
from nodeagent.backends.sim.faults import FaultKind
from tests.nodeagent.director import COMMIT, PREPARE, RELEASE, Director
from tests.nodeagent.simnode import SimNode, until


def saved(node: SimNode) -> bool:
    return any(one.name == "checkpoint-begin" for one in node.events())


async def test_a_job_that_cannot_be_restored(boss: Director) -> None:
    boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    boss.node.driver.fault(FaultKind.NCCL, job="a")
    refused = await boss.ask(PREPARE, 1, "b")
    assert (refused.outcome, refused.fault, refused.job) == (Outcome.REFUSED, Fault.OUTGOING, "a")
    assert "NCCL" in refused.why
    a.do("touch SIM-0 1")
    refused = await boss.ask(COMMIT, 1, "b")
    assert refused.outcome is Outcome.REFUSED
    a.do("touch SIM-0 1")
    assert not saved(boss.node)


async def test_a_stranger_is_the_nodes_fault_and_is_never_killed(boss: Director) -> None:
    boss.start_agent()
    stranger = boss.node.workload("").attach("SIM-0")
    other = boss.node.workload("x", group="other").attach("SIM-0")
    refused = await boss.ask(PREPARE, 1, "b", kill=True)
    assert (refused.outcome, refused.fault) == (Outcome.REFUSED, Fault.NODE)
    assert str(stranger.pid) in refused.why
    assert str(other.pid) in refused.why
    stranger.do("touch SIM-0 1")


async def test_host_memory(boss: Director) -> None:
    boss.start_agent("--host-memory", "1000")
    a = boss.node.workload("a").attach("SIM-0", nominal=1001)
    refused = await boss.ask(PREPARE, 1, "b")
    assert (refused.outcome, refused.fault) == (Outcome.REFUSED, Fault.NODE)
    assert "1001 bytes do not fit" in refused.why
    a.do("touch SIM-0 1")
    assert not saved(boss.node)


async def test_a_process_on_devices_of_two_groups(boss: Director) -> None:
    await boss.claim("SIM-1", "other")
    boss.start_agent()
    boss.node.workload("a").attach("SIM-0").attach("SIM-1")
    refused = await boss.ask(PREPARE, 1, "b")
    assert (refused.fault, refused.job) == (Fault.OUTGOING, "a")
    refused = await boss.ask(PREPARE, 2, "a")
    assert (refused.fault, refused.job) == (Fault.INCOMING, "a")


async def test_a_lock_that_hangs_on_one_process_frees_the_others(boss: Director) -> None:
    boss.start_agent()
    hung = boss.node.workload("a").attach("SIM-0")
    fine = boss.node.workload("a").attach("SIM-0")
    boss.node.driver.fault(FaultKind.LOCK_HANGS, pid=hung.pid)
    refused = await boss.ask(PREPARE, 1, "b", allowed_ms=3000)
    assert (refused.outcome, refused.fault, refused.job) == (Outcome.REFUSED, Fault.OUTGOING, "a")
    assert refused.took_ms < 3000
    fine.do("touch SIM-0 1")
    hung.do("touch SIM-0 1")
    assert (await boss.ask(RELEASE, 1, "a")).outcome is Outcome.RELEASED

    # The hanging call succeeds at last, when nobody waits for it any more.
    boss.node.driver.clear_faults()
    until(lambda: any(one.pid == hung.pid and one.why == "locked" for one in boss.node.events()), "the lock came late")
    hung.do("touch SIM-0 1")


async def test_release_overtakes_a_prepare_that_hangs(boss: Director) -> None:
    boss.start_agent()
    hung = boss.node.workload("a").attach("SIM-0")
    fine = boss.node.workload("a").attach("SIM-0")
    boss.node.driver.fault(FaultKind.LOCK_HANGS, pid=hung.pid)
    await boss.tell(PREPARE, 1, "b", allowed_ms=600_000)
    until(lambda: any(one.pid == fine.pid and one.why == "locked" for one in boss.node.events()), "one is locked")
    released = await boss.ask(RELEASE, 1, "a")
    assert released.outcome is Outcome.RELEASED
    fine.do("touch SIM-0 1")


async def test_groups_do_not_wait_for_each_other(boss: Director) -> None:
    boss.start_agent()
    hung = boss.node.workload("a").attach("SIM-0")
    boss.node.driver.fault(FaultKind.LOCK_HANGS, pid=hung.pid)
    await boss.tell(PREPARE, 1, "b", allowed_ms=600_000)
    other = Director(boss.client, boss.keys, boss.endpoint, boss.node, group="h")
    other.devices = ["SIM-1"]
    c = boss.node.workload("c", group="h").attach("SIM-1")
    await other.switch(1, "d")
    await other.switch(2, "c")
    assert c.intact("SIM-1")


async def test_the_incoming_job_is_never_locked(boss: Director) -> None:
    boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    boss.node.workload("b").attach("SIM-0")
    assert (await boss.ask(PREPARE, 1, "a")).outcome is Outcome.PREPARED
    a.do("touch SIM-0 1")
    assert not (await boss.ask(COMMIT, 1, "a")).restored
    assert [one.job for one in boss.node.events() if one.why == "locked"] == ["b"]
