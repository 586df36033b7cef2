# SPDX-License-Identifier: Apache-2.0
"""`timeslice dev` as a user runs it: a process, its output and its exit status."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import wait_gone

pytestmark = pytest.mark.slow

DEADLINE = 110.0
COMMAND = (sys.executable, "-m", "tsclient.cli.main", "dev", "--replicas", "2")
MARK = "TIMESLICE_TEST_MARK"


def dev(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=DEADLINE)


def test_a_short_run_ends_by_itself_and_holds_its_promises() -> None:
    done = dev("--seconds", "8")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "This takes about 13 s" in done.stdout
    assert "All promises held." in done.stdout
    hand_offs = re.search(r"(\d+) hand-offs in the shared phase", done.stdout)
    assert hand_offs is not None, done.stdout
    assert int(hand_offs[1]) >= 2
    # On a slow machine there may be too few turns in such a short run.
    duty = r"duty cycle alone: job-a \d+%, job-b \d+%; shared: \d+%; .* \d+%|Too few turns"
    assert re.search(duty, done.stdout), done.stdout


def test_an_agent_that_does_not_save_is_found_by_the_devices_log() -> None:
    done = dev("--seconds", "6", "--plant", "skip-save")

    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"job-a and job-b were both able to run on SIM-n0-0 of n0 for [\d.]+ ms\.", done.stdout)
    assert "A PROMISE WAS BROKEN." in done.stdout
    assert "All promises held." not in done.stdout


def test_what_is_kept_is_where_it_was_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    done = dev("--seconds", "4", "--nodes", "1", "--keep", str(folder))

    assert done.returncode == 0, done.stdout + done.stderr
    logs = {one.name for one in folder.iterdir()}
    assert {"replica0.log", "replica1.log", "agent-n0.log", "job-a.log", "device-n0.events", "history.jsonl"} <= logs


@pytest.mark.parametrize("arguments", [("--jobs", "1"), ("--seconds", "nan"), ("--plant", "nothing")])
def test_wrong_arguments_are_refused_before_anything_starts(arguments: tuple[str, str]) -> None:
    done = dev(*arguments)

    assert done.returncode == 2
    assert arguments[0] in done.stderr


@pytest.fixture
def running() -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A run that has begun its first phase, and the pids of all processes that belong to it."""
    mark = uuid.uuid4().hex
    heard = ("env", "--default-signal=INT")  # though whoever runs the tests may ignore it
    with subprocess.Popen(
        [*heard, *COMMAND, "--seconds", "20"], stdout=subprocess.PIPE, text=True, env={**os.environ, MARK: mark}
    ) as process:
        try:
            assert process.stdout is not None
            while "has the turn" not in (line := process.stdout.readline()):
                assert line, "it ended before a job had a turn"
            yield process, marked(mark)
        finally:
            process.kill()


def marked(mark: str) -> list[int]:
    """The processes that were started with the mark in their environment."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                environ = (entry / "environ").read_bytes()
            except OSError:
                continue  # it has ended meanwhile, or is not ours
            if wanted in environ.split(b"\0"):
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_nothing_outlives_the_run(
    running: tuple[subprocess.Popen[str], list[int]], number: signal.Signals, status: int
) -> None:
    process, pids = running
    assert len(pids) > 10  # itself, etcd, devices, history, replicas, agents and their helpers, jobs and their workers

    process.send_signal(number)

    assert process.wait(30) == status
    assert [pid for pid in pids if not wait_gone(pid)] == []


def test_a_job_that_does_not_come_to_its_end_is_a_broken_promise(
    running: tuple[subprocess.Popen[str], list[int]],
) -> None:
    process, pids = running
    (job,) = [pid for pid in pids if b"chaos.dev.job" in cmdline(pid) and b"--seed\x001" in cmdline(pid)]

    os.kill(job, signal.SIGKILL)

    output, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1, output
    assert "job-b ended before it was told to run" in output
    assert "A PROMISE WAS BROKEN." in output


def cmdline(pid: int) -> bytes:
    """The process's arguments, each ended by a zero byte; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""
