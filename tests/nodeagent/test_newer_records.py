# SPDX-License-Identifier: Apache-2.0
"""Rule 32: an agent that meets a record of a later version stands by for that group, and goes on for the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledger.codec import VERSION
from ledger.keys import Keys
from ledger.records import Outcome, ProcessState
from nodeagent.backends.sim.faults import FaultKind
from tests.nodeagent.director import GROUP, NODE, PREPARE, Director
from tests.nodeagent.simnode import until

NEWER = f'{{"version":"{VERSION + 1}","flux":"capacitor"}}'.encode()

RECORDS: dict[str, Callable[[Keys], bytes]] = {
    "directive": lambda keys: keys.directive(NODE, GROUP),
    "ack": lambda keys: keys.ack(NODE, GROUP),
    "processes": lambda keys: keys.processes(NODE, GROUP),
    "registered": lambda keys: keys.registered(NODE, GROUP, "a"),
}


@pytest.mark.parametrize("what", RECORDS)
async def test_rule_32_nothing_is_done_or_written_for_a_group_with_a_newer_record(boss: Director, what: str) -> None:
    other = Director(boss.client, boss.keys, boss.endpoint, boss.node, "other")
    other.devices = ["SIM-1"]
    boss.start_agent()
    await boss.registered()
    a = boss.node.workload("a").attach("SIM-0")
    newer = RECORDS[what](boss.keys)
    await boss.client.put(newer, NEWER)
    if what != "directive":
        await boss.tell(PREPARE, 1, "b")
    boss.node.workload("x", "other").attach("SIM-1")
    for epoch in (1, 2, 3):  # time enough: each is told after the group's own directive, and takes longer
        await other.switch(epoch, "x" if epoch % 2 else "")
    assert boss.node.driver.state(a.pid) is ProcessState.RUNNING
    for key in (boss.keys.ack(NODE, GROUP), boss.keys.processes(NODE, GROUP), newer):
        kv = await boss.client.get(key)
        assert (kv.value if kv else None) == (NEWER if key == newer else None)
    await boss.client.delete(newer)
    if what == "directive":
        await boss.tell(PREPARE, 1, "b")
    kv = await boss.client.get(boss.keys.directive(NODE, GROUP))
    assert kv is not None
    assert (await boss.answer(kv.mod_revision)).outcome is Outcome.PREPARED


@pytest.mark.parametrize("unreadable", [NEWER, b"{"], ids=["newer", "malformed"])
async def test_an_answer_that_cannot_be_read_and_comes_in_between_does_not_end_the_agent(
    boss: Director, unreadable: bytes
) -> None:
    """It is there when the agent is about to write its own, for which it had begun when all could be read."""
    agent = boss.start_agent()
    boss.node.workload("a").attach("SIM-0")
    boss.node.driver.fault(FaultKind.LOCK_HANGS, times=1)
    revision = await boss.tell(PREPARE, 1, "b")
    until(lambda: "told to PREPARE" in boss.agent_log(), "the agent is at it")
    await boss.client.put(boss.keys.ack(NODE, GROUP), unreadable)
    boss.node.driver.clear_faults()
    until(lambda: "it stands still on this node" in boss.agent_log() or agent.poll() is not None, "it has seen it")
    assert agent.poll() is None
    other = Director(boss.client, boss.keys, boss.endpoint, boss.node, "other")
    other.devices = ["SIM-1"]
    await other.switch(1)
    await boss.client.delete(boss.keys.ack(NODE, GROUP))
    assert (await boss.answer(revision)).outcome is Outcome.PREPARED
