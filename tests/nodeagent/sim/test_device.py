# SPDX-License-Identifier: Apache-2.0
"""The simulated device behaves as the driver that it stands for."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ledger.records import ProcessState
from nodeagent.backends.driver import DriverError, NoContext
from nodeagent.backends.sim import log
from nodeagent.backends.sim.driver import SimulatedDriver
from nodeagent.backends.sim.faults import FaultKind
from tests.nodeagent.simnode import DEADLINE, SimNode, sim_node, until


def nothing(done: int, total: int) -> None:
    """No one is told."""


def park(node: SimNode, pid: int) -> None:
    node.driver.lock(pid, 1000)
    node.driver.checkpoint(pid, nothing)


def test_a_round_trip_moves_the_bytes_and_blocks_the_workload(node: SimNode) -> None:
    work = node.workload("a").attach("SIM-0", nominal=1 << 30)
    work.do("touch SIM-0 1")
    reported: list[tuple[int, int]] = []

    assert node.driver.use(["SIM-0"])[0].pids == (work.pid,)
    node.driver.lock(work.pid, 1000)
    node.driver.checkpoint(work.pid, lambda done, total: reported.append((done, total)))
    parked = node.driver.use(["SIM-0"])[0]
    assert (parked.used_bytes, parked.pids) == (0, ())
    assert reported[-1] == (1 << 30, 1 << 30)
    work.send("touch SIM-0 1")
    assert work.blocked()

    node.driver.restore(work.pid, nothing)
    assert node.driver.state(work.pid) is ProcessState.LOCKED
    assert work.blocked()
    node.driver.unlock(work.pid)
    assert work.answer()["kernels"] == 2
    assert work.intact("SIM-0")
    assert log.lost_bytes(node.events()) == []


def test_a_lost_save_shows(node: SimNode) -> None:
    work = node.workload("a").attach("SIM-0")
    node.driver.fault(FaultKind.SAVE_LOSES_DATA, job="a")
    park(node, work.pid)
    node.driver.restore(work.pid, nothing)
    node.driver.unlock(work.pid)
    assert not work.intact("SIM-0")
    assert [one.found.name for one in log.lost_bytes(node.events())] == ["restore-begin"]


@pytest.mark.parametrize(
    ("steps", "call"),
    [
        ([], "checkpoint"),
        ([], "restore"),
        ([], "unlock"),
        (["lock"], "lock"),
        (["lock"], "restore"),
        (["lock", "checkpoint"], "lock"),
        (["lock", "checkpoint"], "unlock"),
    ],
)
def test_a_call_out_of_order_is_refused(node: SimNode, steps: list[str], call: str) -> None:
    pid = node.workload("a").attach("SIM-0").pid
    calls = {
        "lock": lambda: node.driver.lock(pid, 1000),
        "checkpoint": lambda: node.driver.checkpoint(pid, nothing),
        "restore": lambda: node.driver.restore(pid, nothing),
        "unlock": lambda: node.driver.unlock(pid),
    }
    for step in steps:
        calls[step]()
    before = node.driver.state(pid)
    with pytest.raises(DriverError, match="needs"):
        calls[call]()
    assert node.driver.state(pid) is before


def test_the_lock_waits_for_the_kernel_in_flight_and_its_limit_counts(node: SimNode) -> None:
    work = node.workload("a").attach("SIM-0")
    work.send("touch SIM-0 600")
    until(lambda: any(one.name == "touch-begin" for one in node.events()), "the kernel runs")
    with pytest.raises(DriverError, match="timed out"):
        node.driver.lock(work.pid, 50)
    node.driver.lock(work.pid, 30_000)
    names = [one.name for one in node.events()]
    assert names.index("touch-end") < names.index("stop")
    work.answer()


def test_capacity_is_enforced_at_attach_and_at_restore(tmp_path: Path) -> None:
    with sim_node(tmp_path, "--capacity", "1000") as node:
        first = node.workload("a").attach("SIM-0", nominal=800)
        second = node.workload("b")
        assert "out of memory" in second.do("try-attach SIM-0 300")["error"]
        park(node, first.pid)
        second.attach("SIM-0", nominal=300)
        with pytest.raises(DriverError, match="out of memory") as caught:
            node.driver.restore(first.pid, nothing)
        assert not caught.value.final
        assert node.driver.state(first.pid) is ProcessState.PARKED


def test_a_killed_workload_frees_its_memory(node: SimNode) -> None:
    work = node.workload("a").attach("SIM-0")
    work.kill()
    until(lambda: node.driver.use(["SIM-0"])[0].used_bytes == 0, "the memory is free")
    with pytest.raises(NoContext):
        node.driver.state(work.pid)
    assert [(one.name, one.why) for one in node.events()][-2:] == [("stop", "dead"), ("detach", "")]


@pytest.mark.parametrize(
    ("fault", "call", "state", "final"),
    [
        (FaultKind.LOCK_REFUSED, "lock", ProcessState.RUNNING, False),
        (FaultKind.CHECKPOINT_FAILS, "checkpoint", ProcessState.LOCKED, False),
        (FaultKind.CHECKPOINT_BREAKS, "checkpoint", ProcessState.FAILED, True),
        (FaultKind.RESTORE_FAILS, "restore", ProcessState.PARKED, False),
        (FaultKind.RESTORE_BREAKS, "restore", ProcessState.FAILED, True),
        (FaultKind.UNLOCK_FAILS, "unlock", ProcessState.LOCKED, False),
    ],
)
def test_faults_leave_the_state_that_the_driver_would(
    node: SimNode, fault: FaultKind, call: str, state: ProcessState, final: bool
) -> None:
    pid = node.workload("a").attach("SIM-0").pid
    calls = {
        "lock": lambda: node.driver.lock(pid, 1000),
        "checkpoint": lambda: node.driver.checkpoint(pid, nothing),
        "restore": lambda: node.driver.restore(pid, nothing),
        "unlock": lambda: node.driver.unlock(pid),
    }
    node.driver.fault(fault, job="a", times=1)
    for before in list(calls)[: list(calls).index(call)]:
        calls[before]()
    with pytest.raises(DriverError) as caught:
        calls[call]()
    assert (caught.value.call, caught.value.final, node.driver.state(pid)) == (call, final, state)


def test_a_hanging_lock_heeds_no_limit_and_succeeds_late(node: SimNode) -> None:
    pid = node.workload("a").attach("SIM-0").pid
    node.driver.fault(FaultKind.LOCK_HANGS, pid=pid)
    caller = SimulatedDriver(node.socket)
    hung = threading.Thread(target=caller.lock, args=(pid, 1))
    hung.start()
    hung.join(0.3)
    assert hung.is_alive()
    assert node.driver.state(pid) is ProcessState.RUNNING
    node.driver.clear_faults()
    hung.join(DEADLINE)
    assert node.driver.state(pid) is ProcessState.LOCKED
    caller.close()


def test_other_reports(node: SimNode) -> None:
    work = node.workload("a").attach("SIM-0", nominal=100)
    node.driver.fault(FaultKind.NCCL, job="a")
    assert "NCCL" in node.driver.check(work.pid).refused
    node.driver.clear_faults()
    assert node.driver.check(work.pid).refused == ""
    node.driver.fault(FaultKind.MEMORY_NOT_FREED, job="a")
    park(node, work.pid)
    assert node.driver.use(["SIM-0"])[0].used_bytes == 100


def test_the_log_names_jobs_by_their_environment_and_shows_overlaps(node: SimNode) -> None:
    one, two = node.workload("a"), node.workload("b")
    one.attach("SIM-0")
    two.attach("SIM-1")
    one.do("touch SIM-0 1")
    events = node.events()
    assert [(lap.first.job, lap.second.job) for lap in log.overlaps(events)] == [("a", "b")]
    assert log.overlaps(events, ["SIM-0"]) == []
