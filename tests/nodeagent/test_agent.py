# SPDX-License-Identifier: Apache-2.0
"""The agent as a process: from keys in etcd to what runs on the device, and back."""

from __future__ import annotations

from ledger.records import Outcome, ProcessState
from nodeagent.backends.sim import log
from tests.nodeagent.director import COMMIT, PREPARE, RELEASE, Director


async def test_two_jobs_take_turns_and_no_byte_is_lost(boss: Director) -> None:
    boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0", nominal=1 << 30)
    a.do("touch SIM-0 1")

    committed = await boss.switch(1, "b")
    assert not committed.restored
    a.send("touch SIM-0 1")
    assert a.blocked()
    assert [one.state for one in await boss.records("a")] == [ProcessState.PARKED]
    b = boss.node.workload("b").attach("SIM-0", nominal=1 << 30)
    b.do("touch SIM-0 1")

    committed = await boss.switch(2, "a")
    assert committed.restored
    assert a.answer()["kernels"] == 2
    assert a.intact("SIM-0")
    b.send("read SIM-0")
    assert b.blocked()

    await boss.switch(3, "b")
    assert b.answer()["intact"]
    assert log.overlaps(boss.node.events()) == []
    assert log.lost_bytes(boss.node.events()) == []


async def test_release_lets_the_resident_go_on(boss: Director) -> None:
    boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    prepared = await boss.ask(PREPARE, 1, "b")
    assert prepared.outcome is Outcome.PREPARED
    a.send("touch SIM-0 1")
    assert a.blocked()
    assert [one.state for one in await boss.records("a")] == [ProcessState.LOCKED]
    released = await boss.ask(RELEASE, 1, "a")
    assert released.outcome is Outcome.RELEASED
    assert a.answer()["kernels"] == 1
    assert [one.state for one in await boss.records("a")] == [ProcessState.RUNNING]


async def test_a_smaller_epoch_is_stale_also_after_a_restart(boss: Director) -> None:
    agent = boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    await boss.switch(5, "a")
    for _ in range(2):
        for kind in (PREPARE, COMMIT, RELEASE):
            stale = await boss.ask(kind, 4, "b")
            assert (stale.outcome, stale.highest_epoch) == (Outcome.STALE, 5)
        agent.kill()
        agent.wait()
        agent = boss.start_agent()
    a.do("touch SIM-0 1")
