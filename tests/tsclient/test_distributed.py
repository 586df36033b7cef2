# SPDX-License-Identifier: Apache-2.0
"""A job of eight ranks: one ticket, all in step, and nothing is left behind by whichever of them dies.

The ranks talk over sockets; with TIMESLICE_TORCH_PYTHON set (`make test-torch`) over gloo too.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.tsclient.fake_coordinator import FakeCoordinator
from tests.tsclient.waiting import until

ROOT = Path(__file__).parents[2]
RANKS = 8
TORCH = os.environ.get("TIMESLICE_TORCH_PYTHON", "")
WAYS = ["sockets", "torch"] if TORCH else ["sockets"]


@contextmanager
def ranks(coordinator: FakeCoordinator, way: str, mode: str, folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """The job's processes, rank 0 first; killed at the end of the block."""
    with ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(RANKS - 1)]
        for ours, theirs in pairs:
            stack.enter_context(ours)
            stack.enter_context(theirs)
        zeros = [ours.fileno() for ours, _ in pairs]
        found = []
        for rank in range(RANKS):
            descriptors = zeros if rank == 0 else [pairs[rank - 1][1].fileno()]
            place = ",".join(map(str, descriptors)) if way == "sockets" else str(folder / "meeting")
            found.append(
                subprocess.Popen(
                    [
                        sys.executable if way == "sockets" else TORCH,
                        str(Path(__file__).with_name("rank_program.py")),
                        *(way, str(rank), str(RANKS), place, mode),
                    ],
                    env={
                        **os.environ,
                        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "protos")]),
                        "PYTHONUNBUFFERED": "1",
                        "OMP_NUM_THREADS": "1",
                        "TIMESLICE_ENDPOINTS": ",".join(coordinator.endpoints),
                        "TIMESLICE_JOB_ID": "a",
                        "TIMESLICE_TTL": "600",
                    },
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=descriptors if way == "sockets" else (),
                    text=True,
                )
            )
        for ours, theirs in pairs:
            ours.close()
            theirs.close()
        try:
            yield found
        finally:
            for process in found:
                process.kill()
                process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def ends(processes: list[subprocess.Popen[str]]) -> list[int]:
    return [process.wait(60) for process in processes]


@pytest.mark.parametrize("way", WAYS)
def test_all_ranks_share_one_ticket_and_give_it_back_when_all_are_done(
    coordinator: FakeCoordinator, way: str, tmp_path: Path
) -> None:
    with ranks(coordinator, way, "steps", tmp_path) as job:
        assert {line(process) for process in job} == {"token 101"}
        assert {line(process) for process in job} == {"done at step 10 synced 1 False"}
        assert ends(job) == [0] * RANKS
    assert [entry for entry in coordinator.log if entry.startswith("acquire")] == ["acquire 1"]
    assert coordinator.log.count("open") == 1
    assert coordinator.queue == []


@pytest.mark.parametrize("way", WAYS)
def test_a_loss_is_raised_on_all_ranks_at_the_same_step(coordinator: FakeCoordinator, way: str, tmp_path: Path) -> None:
    with ranks(coordinator, way, "on", tmp_path) as job:
        assert {line(process) for process in job} == {"token 101"}
        coordinator.evict()
        told = {line(process) for process in job}
        assert ends(job) == [0] * RANKS
    assert len(told) == 1
    assert told.pop().startswith("EVICTED at step")
    until(lambda: coordinator.queue == [])


@pytest.mark.parametrize("way", WAYS)
def test_a_refusal_is_raised_on_all_ranks(coordinator: FakeCoordinator, way: str, tmp_path: Path) -> None:
    coordinator.faults.refuse["a"] = ("JOB_QUARANTINED", "It could not be restored.")
    with ranks(coordinator, way, "on", tmp_path) as job:
        assert {line(process) for process in job} == {"JOB_QUARANTINED at step 0"}
        assert ends(job) == [0] * RANKS


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("victim", [0, 5])
def test_a_killed_rank_leaves_nothing_behind(
    coordinator: FakeCoordinator, way: str, victim: int, tmp_path: Path
) -> None:
    with ranks(coordinator, way, "on", tmp_path) as job:
        assert {line(process) for process in job} == {"token 101"}
        job[victim].send_signal(signal.SIGKILL)
        until(lambda: coordinator.queue == [], 60)
        statuses = ends(job)
    assert statuses[victim] == -signal.SIGKILL
    assert set(statuses[:victim] + statuses[victim + 1 :]) == {3}
    until(lambda: coordinator.sessions == {})


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_that_is_killed_while_the_job_waits_costs_the_turn_alone(
    coordinator: FakeCoordinator, way: str, tmp_path: Path
) -> None:
    coordinator.stranger()
    with ranks(coordinator, way, "on", tmp_path) as job:
        until(lambda: len(coordinator.queue) == 2, 60)
        job[5].send_signal(signal.SIGKILL)
        job[5].wait(30)
        coordinator.stranger_leaves()
        until(lambda: coordinator.queue == [], 60)
        statuses = ends(job)
    assert set(statuses[:5] + statuses[6:]) == {3}
