# SPDX-License-Identifier: Apache-2.0
"""L12: killed at a point of a switch that no other test has: told of an epoch, and in the middle of a release.

The points of PREPARE and COMMIT are in tests/nodeagent/test_crashes.py.
"""

from __future__ import annotations

import signal

import pytest

from ledger.records import Outcome
from nodeagent.backends.sim import log
from tests.nodeagent.director import PREPARE, RELEASE, Director
from tests.nodeagent.simnode import DEADLINE


@pytest.mark.parametrize("point", ["agent.epoch", "agent.release.undone", "agent.release.acked"])
async def test_l12_the_next_life_goes_on_where_the_last_was_killed(boss: Director, point: str) -> None:
    """What was told is answered once, what was locked runs again, and the next switch comes to its end."""
    agent = boss.start_agent(failpoints=f"{point}=kill")
    a = boss.node.workload("a").attach("SIM-0")
    told = await boss.tell(PREPARE, 1, "b")
    if point != "agent.epoch":
        assert (await boss.answer(told)).outcome is Outcome.PREPARED
        told = await boss.tell(RELEASE, 1, "a")
    assert agent.wait(DEADLINE) == -signal.SIGKILL
    boss.start_agent()
    answered = await boss.answer(told)
    assert answered.outcome is (Outcome.PREPARED if point == "agent.epoch" else Outcome.RELEASED)
    if point == "agent.epoch":
        assert (await boss.ask(RELEASE, 1, "a")).outcome is Outcome.RELEASED
    a.do("touch SIM-0 1")
    await boss.switch(2, "b")
    assert (await boss.switch(3, "a")).restored
    assert a.intact("SIM-0")
    assert log.lost_bytes(boss.node.events()) == []
