# SPDX-License-Identifier: Apache-2.0
"""D6, D7, D11: what is listed and holds nothing, what a job has forked, and a process id that is another's by now."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from ledger.codec import encode
from ledger.records import JobProcesses, Processes, ProcessRecord, ProcessState, Registered
from nodeagent.backends.sim import log
from nodeagent.backends.sim.faults import FaultKind
from tests.nodeagent.director import GROUP, NODE, Director
from tests.nodeagent.simnode import SimNode

LOADER = Path(__file__).with_name("loader.py")


def touched(node: SimNode, pid: int) -> set[str]:
    """What has been done to a process, by the device's log."""
    return {one.name for one in node.events() if one.pid == pid}


@pytest.mark.parametrize("job", ["", "a", "b"], ids=["of-no-job", "of-the-one-that-goes", "of-the-one-that-comes"])
async def test_d6_a_process_that_is_listed_and_has_no_context_is_left_alone(boss: Director, job: str) -> None:
    """It only counts devices: neither a stranger that forbids the switch, nor something that has to be moved."""
    boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    counts = boss.node.workload(job)
    boss.node.driver.fault(FaultKind.LISTED, pid=counts.pid)
    assert counts.pid in boss.node.driver.use(["SIM-0"])[0].pids
    await boss.switch(1, "b")
    a.send("touch SIM-0 1")
    assert a.blocked()
    assert (await boss.switch(2, "a")).restored
    assert a.answer()["kernels"] == 1
    assert counts.running
    assert not touched(boss.node, counts.pid)
    records = [one for name in ("a", "b") for one in await boss.records(name)]
    assert counts.process not in [one.process for one in records]


async def test_d7_forked_children_go_and_come_with_their_job_and_a_loader_works_on(boss: Director) -> None:
    """No child was registered by anybody. One has a context of its own, the other only what it inherited."""
    boss.start_agent()
    parent = boss.node.workload("a", script=LOADER, arguments=("SIM-0",))
    children = parent.answer()
    await boss.switch(1, "b")
    saved = {one.pid for one in boss.node.events() if one.name == "checkpoint-end"}
    assert saved == {parent.pid, children["child"]}
    parent.do("load")  # while all else of the job is parked
    parent.send("child")
    assert parent.blocked()
    assert (await boss.switch(2, "a")).restored
    assert parent.answer() == {"done": "child"}
    parent.do("touch")
    assert not touched(boss.node, children["load"])
    assert log.lost_bytes(boss.node.events()) == []


async def test_d7_a_loader_that_outlives_its_parked_parent_keeps_nobody_out(boss: Director) -> None:
    """It has inherited the dead one's connection to the device, and is no reason to wait for."""
    boss.start_agent()
    parent = boss.node.workload("a", script=LOADER, arguments=("SIM-0",))
    children = parent.answer()
    await boss.switch(1, "b")
    gone = parent.process
    os.kill(children["load"], signal.SIGSTOP)  # so that it does not end with its pipe
    try:
        parent.kill()
        parent.wait()
        committed = await boss.switch(2, "a")
        assert gone in committed.lost
        c = boss.node.workload("c").attach("SIM-0")
        await boss.switch(3, "c")
        c.do("touch SIM-0 1")
    finally:
        os.kill(children["load"], signal.SIGKILL)


@pytest.mark.parametrize("where", ["recorded", "registered"])
async def test_d11_a_process_id_that_is_anothers_by_now_makes_it_nobody_elses(boss: Director, where: str) -> None:
    """The ledger has a process of ``a`` that has ended. Its process id has gone to one of ``b``, which is on.

    That one is no process of ``a``: it goes when ``a`` comes, comes back for ``b``, and is never killed for the dead.
    """
    b = boss.node.workload("b")
    dead = replace(b.process, start_time=b.process.start_time - 1)
    if where == "recorded":
        parked = ProcessRecord(dead, ProcessState.PARKED, 77)
        await boss.client.put(boss.keys.processes(NODE, GROUP), encode(Processes(jobs=(JobProcesses("a", (parked,)),))))
    else:
        await boss.client.put(boss.keys.registered(NODE, GROUP, "a"), encode(Registered(processes=(dead,))))
    boss.start_agent()
    await boss.registered()
    b.attach("SIM-0")
    committed = await boss.switch(1, "a", parked_ttl_ms=1)
    assert not committed.restored
    assert committed.lost == ((dead,) if where == "recorded" else ())  # named once, to the job that has lost it
    b.send("touch SIM-0 1")
    assert b.blocked(), "a process of b runs in the turn of a"
    assert (await boss.switch(2, "b")).restored
    assert b.answer()["kernels"] == 1
