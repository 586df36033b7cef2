# SPDX-License-Identifier: Apache-2.0
"""Rule 23: what an agent does first of all when it is back on a node that was dropped while it was away."""

from __future__ import annotations

import signal

from ledger.records import Fault, Outcome, ProcessState
from tests.nodeagent.director import COMMIT, PREPARE, Director
from tests.nodeagent.simnode import DEADLINE, until


async def test_rule_23_a_dropped_node_is_cleared_by_the_next_life_before_it_takes_part_again(boss: Director) -> None:
    """It died with a switch prepared; the group went on, and told it to commit nobody without preparing it again."""
    agent = boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    assert (await boss.ask(PREPARE, 1, "b")).outcome is Outcome.PREPARED
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    dropped = await boss.tell(COMMIT, 2, kill=True)
    boss.start_agent()
    assert (await boss.answer(dropped)).outcome is Outcome.COMMITTED
    assert boss.node.driver.state(a.pid) is ProcessState.PARKED
    assert [one.state for one in await boss.records("a")] == [ProcessState.PARKED]
    committed = await boss.switch(3, "a")
    assert committed.restored and a.intact("SIM-0")


async def test_rule_23_a_dropped_node_that_cannot_be_cleared_leaves_nothing_locked(boss: Director) -> None:
    """It died in a COMMIT, with a job restored and not resumed; when it is back, it refuses what it is told."""
    agent = boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    await boss.switch(1, "b")
    agent.send_signal(signal.SIGKILL)
    agent.wait(DEADLINE)
    agent = boss.start_agent(failpoints="agent.commit.restored=kill")
    await boss.tell(COMMIT, 2, "a")
    agent.wait(DEADLINE)
    assert boss.node.driver.state(a.pid) is ProcessState.LOCKED
    stranger = boss.node.workload("").attach("SIM-0")
    dropped = await boss.tell(COMMIT, 3, kill=True)
    boss.start_agent()
    refused = await boss.answer(dropped)
    assert (refused.outcome, refused.fault) == (Outcome.REFUSED, Fault.NODE)
    assert str(stranger.pid) in refused.why
    until(lambda: boss.node.driver.state(a.pid) is ProcessState.RUNNING, "it goes on")
    assert a.intact("SIM-0")
