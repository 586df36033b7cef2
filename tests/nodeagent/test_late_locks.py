# SPDX-License-Identifier: Apache-2.0
"""A lock that is in hand as its PREPARE is given up does not come after the answer, when somebody may hold the turn."""

from __future__ import annotations

import pytest

from ledger.records import Outcome
from tests.nodeagent.director import PREPARE, RELEASE, Director
from tests.nodeagent.simnode import until
from tests.nodeagent.test_dead_helpers import busy


@pytest.mark.parametrize("kernel_ms", [500, 2_500])
async def test_a_lock_that_waits_for_a_kernel_is_over_before_the_release_is_answered(
    boss: Director, kernel_ms: int
) -> None:
    boss.start_agent("--ttl", "60")
    await boss.switch(1, "a")
    a = boss.node.workload("a").attach("SIM-0")
    a.send(f"touch SIM-0 {kernel_ms}")
    until(lambda: boss.node.events()[-1].name == "touch-begin", "the kernel runs")
    await boss.tell(PREPARE, 2, "b")
    until(lambda: busy(boss, a.pid), "the driver is locking")
    released = await boss.ask(RELEASE, 3, "a")
    assert released.outcome is Outcome.RELEASED
    before = len(boss.node.events())
    a.answer()
    a.do("touch SIM-0 50")
    assert [event.name for event in boss.node.events()[before:] if event.name == "stop"] == []
