# SPDX-License-Identifier: Apache-2.0
"""A helper is killed in the middle of a call, as by the kernel when memory is short: that is no job's fault."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from ledger.records import Outcome, ProcessState
from nodeagent.backends.base import BackendError
from nodeagent.backends.driven import DrivenBackend
from nodeagent.backends.driver import DriverError, Progress
from nodeagent.backends.drivers import DriverChoice
from nodeagent.backends.sim import log
from nodeagent.backends.sim.faults import FaultKind
from nodeagent.flocks import DeviceLocks, holders_of
from nodeagent.helpers import LOOKER, HelperDied, HelperPool
from tests.nodeagent.director import COMMIT, PREPARE, Director
from tests.nodeagent.simnode import DEADLINE, SimNode, until

_MS = 1500
"""How long a step takes, so that its helper is killed in it."""


def kill_all(boss: Director, agent: int) -> None:
    """SIGKILL every helper of the agent, and nothing else."""
    helpers = set(holders_of(boss.node.folder / "state" / "locks" / "SIM-0.lock")) - {agent}
    assert helpers
    for pid in helpers:
        os.kill(pid, signal.SIGKILL)


def busy(boss: Director, pid: int) -> bool:
    """Whether the driver is at a call for this process."""
    try:
        boss.node.driver.unlock(pid)
    except DriverError as error:
        return "in progress" in error.why
    raise AssertionError("it was locked, and nobody was at it")


@pytest.mark.parametrize("step", ["lock", "checkpoint", "restore"])
async def test_the_step_is_done_and_nobody_is_blamed(boss: Director, step: str) -> None:
    agent = boss.start_agent("--ttl", "60")
    a = boss.node.workload("a").attach("SIM-0")
    await boss.switch(1, "b")
    b = boss.node.workload("b").attach("SIM-0")
    if step == "lock":
        b.send(f"touch SIM-0 {_MS}")  # a lock waits for the kernel that runs
        until(lambda: boss.node.events()[-1].name == "touch-begin", "the kernel runs")
        revision = await boss.tell(PREPARE, 2, "a")
        until(lambda: busy(boss, b.pid), "the driver is locking")
        kill_all(boss, agent.pid)
        assert (await boss.answer(revision)).outcome is Outcome.PREPARED
        revision = await boss.tell(COMMIT, 2, "a")
        b.answer()
    else:
        boss.node.driver.fault(FaultKind.SLOW, job={"checkpoint": "b", "restore": "a"}[step], times=1, ms=_MS)
        assert (await boss.ask(PREPARE, 2, "a")).outcome is Outcome.PREPARED
        revision = await boss.tell(COMMIT, 2, "a")
        until(lambda: boss.node.events()[-1].name == f"{step}-begin", f"the {step} has begun")
        kill_all(boss, agent.pid)
    answer = await boss.answer(revision)
    assert (answer.outcome, answer.why, answer.lost) == (Outcome.COMMITTED, "", ())
    assert a.intact("SIM-0")
    await boss.switch(3, "b")
    assert b.intact("SIM-0")
    assert log.overlaps(boss.node.events()) == []


@pytest.mark.parametrize("what", ["look", "lock"])
async def test_a_call_that_was_not_heard_is_made_again(node: SimNode, tmp_path: Path, what: str) -> None:
    work = node.workload("a").attach("SIM-0")
    locks = DeviceLocks(tmp_path / "locks", ["SIM-0"])
    await locks.acquire()
    pool = HelperPool(DriverChoice("sim", str(node.socket)), locks.fds)
    backend = DrivenBackend("sim", pool, baseline_bytes=0)
    await pool.warm(LOOKER if what == "look" else work.pid)
    (helper,) = holders_of(tmp_path / "locks" / "SIM-0.lock")
    os.kill(helper, signal.SIGSTOP)
    if what == "look":
        call: Awaitable[object] = backend.use(["SIM-0"], within=DEADLINE)
    else:
        call = backend.lock(work.process, within=DEADLINE)
    calling = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    os.kill(helper, signal.SIGKILL)
    await calling
    assert node.driver.state(work.pid) is (ProcessState.RUNNING if what == "look" else ProcessState.LOCKED)
    await backend.close()
    locks.close()


class Deadly(HelperPool):
    """Whoever locks, dies."""

    locks = 0

    async def call(
        self, name: str, pid: int, *, within: float, progress: Progress | None = None, **arguments: Any
    ) -> Any:
        if name == "lock":
            self.locks += 1
            raise HelperDied(name, pid, "its helper ended")
        return await super().call(name, pid, within=within, progress=progress, **arguments)


async def test_a_call_that_ends_every_helper_is_not_made_for_ever(node: SimNode) -> None:
    """As where the driver's own library crashes."""
    work = node.workload("a").attach("SIM-0")
    pool = Deadly(DriverChoice("sim", str(node.socket)), ())
    backend = DrivenBackend("sim", pool, baseline_bytes=0)
    with pytest.raises(BackendError, match="its helper ended"):
        await backend.lock(work.process, within=DEADLINE)
    assert pool.locks == 2
    await backend.close()
