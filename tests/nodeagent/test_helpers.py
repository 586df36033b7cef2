# SPDX-License-Identifier: Apache-2.0
"""Helper processes and OS locks, without an agent."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ledger import failpoint
from ledger.records import ProcessState
from nodeagent.backends.driver import DriverError, NoContext
from nodeagent.backends.drivers import DriverChoice
from nodeagent.backends.sim.faults import FaultKind
from nodeagent.flocks import DeviceLocks, holders_of
from nodeagent.helpers import LOOKER, HelperDied, HelperPool, HelperTimedOut
from tests.nodeagent.simnode import DEADLINE, SimNode, until


@pytest.fixture
async def pool(node: SimNode) -> AsyncIterator[HelperPool]:
    pool = HelperPool(DriverChoice("sim", str(node.socket)), ())
    yield pool
    await pool.close()


async def test_answers_and_errors_come_through(node: SimNode, pool: HelperPool) -> None:
    work = node.workload("a").attach("SIM-0", nominal=9)
    assert await pool.call("check", work.pid, within=DEADLINE) == ["", 9]
    _, states = await pool.call("look", LOOKER, within=DEADLINE, devices=[], of=[], pids=[work.pid, 1])
    assert states == [[1, None], [work.pid, "RUNNING"]]
    with pytest.raises(NoContext):
        await pool.call("unlock", 1, within=DEADLINE)
    with pytest.raises(DriverError, match="no such call"):
        await pool.call("explode", LOOKER, within=DEADLINE)


async def test_a_call_that_hangs_ends_with_its_helper_and_the_next_has_a_new_one(
    node: SimNode, pool: HelperPool
) -> None:
    work = node.workload("a").attach("SIM-0")
    # Its helper is there, however long that takes: the time allowed is then the lock's alone, which meets the fault.
    await pool.call("check", work.pid, within=DEADLINE)
    node.driver.fault(FaultKind.LOCK_HANGS, times=1)
    with pytest.raises(HelperTimedOut):
        await pool.call("lock", work.pid, within=0.5, timeout_ms=1)
    await pool.call("lock", work.pid, within=DEADLINE, timeout_ms=1000)
    assert node.driver.state(work.pid) is ProcessState.LOCKED


async def test_a_call_does_not_wait_for_ever_for_the_one_before(node: SimNode, pool: HelperPool) -> None:
    work = node.workload("a").attach("SIM-0")
    node.driver.fault(FaultKind.LOCK_HANGS, times=1)
    first = asyncio.create_task(pool.call("lock", work.pid, within=DEADLINE, timeout_ms=1))
    await asyncio.sleep(0)
    with pytest.raises(HelperTimedOut, match="busy"):
        await pool.call("check", work.pid, within=0.5)
    node.driver.clear_faults()
    await first


async def test_a_helper_that_dies_is_an_error_of_its_call(node: SimNode, tmp_path: Path) -> None:
    locks = DeviceLocks(tmp_path / "locks", ["SIM-0"])
    await locks.acquire()
    pool = HelperPool(DriverChoice("sim", str(node.socket)), locks.fds)
    work = node.workload("a").attach("SIM-0")
    node.driver.fault(FaultKind.LOCK_HANGS)
    call = asyncio.create_task(pool.call("lock", work.pid, within=DEADLINE, timeout_ms=1))
    (helper,) = await _holders(tmp_path / "locks" / "SIM-0.lock", 1)
    os.kill(helper, signal.SIGKILL)
    with pytest.raises(HelperDied):
        await call
    await pool.close()
    locks.close()


async def test_progress_is_told(node: SimNode, pool: HelperPool) -> None:
    work = node.workload("a").attach("SIM-0", nominal=100)
    node.driver.fault(FaultKind.SLOW, ms=200)
    told: list[tuple[int, int]] = []
    await pool.call("lock", work.pid, within=DEADLINE, timeout_ms=1000)
    await pool.call("checkpoint", work.pid, within=DEADLINE, progress=lambda *each: told.append(each))
    assert told == [(done, 100) for done in range(10, 101, 10)]


async def test_closing_unlocks_what_is_locked_but_not_what_is_being_saved(node: SimNode) -> None:
    locked = node.workload("a").attach("SIM-0")
    failed = node.workload("a").attach("SIM-0")
    node.driver.fault(FaultKind.CHECKPOINT_FAILS)
    pool = HelperPool(DriverChoice("sim", str(node.socket)), ())
    for work in (locked, failed):
        await pool.call("lock", work.pid, within=DEADLINE, timeout_ms=1000)
    with pytest.raises(DriverError):
        await pool.call("checkpoint", failed.pid, within=DEADLINE)
    await pool.close()
    assert node.driver.state(locked.pid) is ProcessState.RUNNING
    assert node.driver.state(failed.pid) is ProcessState.LOCKED


async def test_helpers_of_living_processes_are_kept(node: SimNode, pool: HelperPool) -> None:
    """The end of a helper unlocks: one group's look must not end what another group's PREPARE needs."""
    work, gone = node.workload("a").attach("SIM-0"), node.workload("a").attach("SIM-0")
    for one in (work, gone):
        await pool.call("lock", one.pid, within=DEADLINE, timeout_ms=1000)
    gone.end()
    await pool.forget_dead()
    assert node.driver.state(work.pid) is ProcessState.LOCKED
    assert sorted(pool._helpers) == [work.pid]


async def test_several_looks_may_forget_the_same_dead_at_once(node: SimNode, pool: HelperPool) -> None:
    """Each group looks for itself, and a job's processes end together."""
    gone = [node.workload("a").attach("SIM-0") for _ in range(3)]
    for one in gone:
        await pool.warm(one.pid)
        one.end()
    await asyncio.gather(*(pool.forget_dead() for _ in range(3)))
    assert not pool._helpers


async def test_a_lock_lasts_as_long_as_a_helper(node: SimNode, tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    locks = DeviceLocks(folder, ["SIM-1", "SIM-0"])
    await locks.acquire()
    pool = HelperPool(DriverChoice("sim", str(node.socket)), locks.fds)
    await pool.warm(LOOKER)
    locks.close()
    second = DeviceLocks(folder, ["SIM-0", "SIM-1"])
    waiting = asyncio.create_task(second.acquire())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.5)
    await pool.close()
    await asyncio.wait_for(waiting, DEADLINE)
    second.close()


async def _holders(path: Path, count: int) -> list[int]:
    # In a thread: the helper is started by this loop.
    found: list[int] = []

    def all_there() -> bool:
        found[:] = holders_of(path)
        return len(found) == count

    await asyncio.to_thread(until, all_there, f"{count} helpers hold {path}")
    return found


@pytest.mark.parametrize("text", ["x", "x=", "=kill", "x=explode", "x=sleep", "x=sleep:soon", "x=kill:3"])
def test_malformed_failpoints_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no failpoint"):
        failpoint.parse(text)


def test_failpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoint, "_armed", failpoint.parse("a=error, b=sleep:1").get)
    failpoint.hit("other")
    failpoint.hit("b")
    with pytest.raises(failpoint.FailpointError, match="a"):
        failpoint.hit("a")
