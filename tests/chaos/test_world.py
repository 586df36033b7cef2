# SPDX-License-Identifier: Apache-2.0
"""The world: real processes by name, jobs in it, and the history of what they did."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from chaos import history
from chaos.dev.job import Rhythm
from chaos.processes import Child, ProcessTrouble
from chaos.world import World
from ledger.records import Phase
from nodeagent.backends.sim import log
from tests.support.processes import wait_gone

pytestmark = pytest.mark.slow

QUICK = Rhythm(busy=0.1, idle=0.05, kernel=0.02)
WITHIN = 60.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(replicas=2, nodes=2, folder=tmp_path) as one:
        yield one


def test_jobs_take_turns_and_the_history_has_each(world: World) -> None:
    jobs = [world.start_job(name, rhythm=QUICK, seed=seed) for seed, name in enumerate(("job-a", "job-b"))]
    for job in jobs:
        job.run()
    for job in jobs:
        job.wait_turns(3, WITHIN)
        job.rest()
    for job in jobs:
        job.wait_rested(WITHIN)
        assert job.end() == 0
        assert job.troubles == []
        assert all(turn.intact for turn in job.turns)
    world.stop("history")

    history = [one for one in world.history() if one.group == world.group]
    assert all(before.revision < after.revision for before, after in pairwise(history))
    assert all(before.mono <= after.mono for before, after in pairwise(history))
    held = [one.turn for one in history if one.turn and one.turn.phase is Phase.HELD and one.turn.holder]
    granted = sorted((turn.token, job.name) for job in jobs for turn in job.turns)
    assert [(turn.token, turn.holder.job) for turn in held if turn.holder] == granted
    for node in world.nodes:
        assert log.overlaps(world.events(node)) == []
        assert log.lost_bytes(world.events(node)) == []


def test_processes_are_killed_frozen_and_restarted_by_name(world: World) -> None:
    job = world.start_job("job-a", rhythm=QUICK)
    job.run()
    job.wait_turns(1, WITHIN)
    pids = {name: world.pid(name) for name in ("replica0", "agent-n0")}

    for name in pids:
        world.kill(name)
        assert world.pid(name) is None
    turns = len(job.turns)
    job.wait_turns(turns + 3, WITHIN)  # the other replica serves, and a resident's next turn needs no agent
    for name, pid in pids.items():
        world.restart(name)
        assert world.pid(name) not in (None, pid)

    world.freeze("replica1")
    assert state(world.pid("replica1")) == "T"
    turns = len(job.turns)
    job.wait_turns(turns + 3, WITHIN)
    world.thaw("replica1")
    world.stop("replica1")
    assert world.pid("replica1") is None
    assert job.troubles == []


def test_etcd_members_are_named_as_the_rest_is(tmp_path: Path) -> None:
    with World(etcd=3, folder=tmp_path) as world:
        job = world.start_job("job-a", rhythm=QUICK)
        job.run()
        job.wait_turns(1, WITHIN)

        world.kill("etcd1")
        assert world.pid("etcd1") is None
        turns = len(job.turns)
        job.wait_turns(turns + 3, WITHIN)
        world.restart("etcd1")
        assert world.pid("etcd1") is not None
        assert job.troubles == []


def test_all_is_gone_at_the_end(tmp_path: Path) -> None:
    with World(folder=tmp_path) as world:
        job = world.start_job("job-a", rhythm=QUICK)
        job.run()
        job.wait_turns(1, WITHIN)
        pids = [pid for name in world.names if (pid := world.pid(name)) is not None]
        workers = [one.pid for node in world.nodes for one in world.events(node)]
    assert len(pids) == 6  # etcd, device, history, replica, agent, job
    assert [pid for pid in {*pids, *workers} if not wait_gone(pid)] == []


def test_what_does_not_start_is_named_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(ProcessTrouble, match=r"agent-n0 ended.*(\n.*)*No module named no_such_agent"):
        World(agent=("-m", "no_such_agent"), folder=tmp_path).start()


def test_a_job_that_ended_is_not_waited_for(world: World) -> None:
    job = world.start_job("job-a", rhythm=QUICK)
    world.kill("job-a")
    with pytest.raises(ProcessTrouble, match="ended before it did have 1 turns"):
        job.wait_turns(1, within=3600)


def test_a_child_that_never_says_so_is_not_ready(tmp_path: Path) -> None:
    child = Child("mute", ["-c", "input()"], tmp_path / "log", ready="^ready")
    child.start()
    try:
        with pytest.raises(ProcessTrouble, match=r"not ready within 0\.1 s"):
            child.wait_ready(0.1)
    finally:
        child.kill()


def test_the_end_of_a_life_is_not_that_of_the_next(tmp_path: Path) -> None:
    # Its first life leaves a child that holds its output open for a while, so what it wrote is read to its end late.
    first = "import os, pathlib, subprocess, time; p = pathlib.Path('second'); again = p.exists(); p.touch()\n"
    second = "if again: time.sleep(1.5); print('ready', flush=True); input()\n"
    program = f"{first}{second}else: subprocess.Popen(['sleep', '0.5'])"
    command = ["-c", f"import os; os.chdir({str(tmp_path)!r})\n{program}"]
    child = Child("twice", command, tmp_path / "log", ready="^ready")
    child.start()
    try:
        while child.pid is not None:
            os.sched_yield()
        child.start()
        child.wait_ready(WITHIN)
    finally:
        child.kill()


def test_a_history_line_that_is_being_written_is_left_out(world: World, tmp_path: Path) -> None:
    recorded = world.folder / "history.jsonl"
    until = time.monotonic() + WITHIN
    while b"\n" not in recorded.read_bytes() and time.monotonic() < until:
        time.sleep(0.05)  # the group's first turn is written by a replica, in its own time
    # A copy: the world goes on writing its own.
    path, whole = tmp_path / "copy.jsonl", recorded.read_bytes()
    path.write_bytes(whole[: whole.rindex(b"\n") + 1] + json.dumps({"revision": 1})[:-1].encode())
    assert len(history.read(path)) == whole.count(b"\n") > 0


def state(pid: int | None) -> str:
    """The process's state letter."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
