# SPDX-License-Identifier: Apache-2.0
"""`timeslice acquire`, `yield` and `status`: a turn that a process keeps for a shell script."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import wait_gone
from tests.tsclient.child import ROOT
from tests.tsclient.fake_coordinator import FakeCoordinator
from tests.tsclient.waiting import until
from tsclient.cli.exits import Exit

TIMESLICE = (sys.executable, "-m", "tsclient.cli.main")


class Shell:
    """Where the commands are called: their environment, and a process that tickets are bound to."""

    def __init__(self, coordinator: FakeCoordinator, folder: Path, parent: subprocess.Popen[bytes]) -> None:
        self.coordinator, self.folder, self.parent = coordinator, folder, parent
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "protos")]),
            "TIMESLICE_ENDPOINTS": ",".join(coordinator.endpoints),
            "TIMESLICE_GROUP": "g",
            "TIMESLICE_JOB_ID": "a",
            "XDG_RUNTIME_DIR": str(folder),
        }

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, which is that of its output too: nothing may hold that open."""
        return subprocess.run(
            [*TIMESLICE, *arguments], env=self.environment, capture_output=True, text=True, timeout=60
        )

    @contextmanager
    def started(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def acquire(self) -> dict[str, int | str]:
        """The ticket and what is known of it, bound to `parent`."""
        done = self("acquire", "--pid", str(self.parent.pid), "-o", "json")
        assert done.returncode == 0, done.stderr
        found: dict[str, int | str] = json.loads(done.stdout)
        return found

    @property
    def jobs(self) -> list[str]:
        """Of the queue, the holder first."""
        return [ticket.job for ticket in self.coordinator.queue]

    @property
    def left(self) -> list[str]:
        """Files of tickets."""
        return [path.name for path in (self.folder / "timeslice").iterdir()]


@pytest.fixture
def shell(coordinator: FakeCoordinator) -> Iterator[Shell]:
    folder = Path(tempfile.mkdtemp(prefix="ts-"))  # a socket's path has at most 107 bytes
    with subprocess.Popen(["sleep", "1000"]) as parent:
        yield Shell(coordinator, folder, parent)
        parent.kill()  # and with it whatever is bound to it
    until(lambda: coordinator.queue == [] or coordinator.queue[0].session == "stranger")
    shutil.rmtree(folder)


def test_a_turn_outlives_the_command_and_is_given_back_by_another(shell: Shell) -> None:
    acquired = shell("acquire", "--pid", str(shell.parent.pid))
    ticket = acquired.stdout.strip()
    assert (acquired.returncode, acquired.stderr) == (0, "")
    assert shell.jobs == ["a"]
    assert shell("status", "--ticket", ticket).stdout.splitlines()[1].split()[:5] == [ticket, "g", "a", "101", "held"]

    given_back = shell("yield", "--ticket", ticket)
    assert (given_back.returncode, given_back.stdout) == (0, "Job a has given back g; 0 waiting.\n")
    assert shell.jobs == []
    assert shell("yield", "--ticket", ticket).returncode == Exit.NOT_FOUND
    assert shell("status", "--ticket", ticket).returncode == Exit.NOT_FOUND


def test_it_ends_with_the_process_that_it_is_bound_to(shell: Shell) -> None:
    keeper = int(shell.acquire()["keeper"])
    shell.parent.kill()
    assert wait_gone(keeper)
    assert shell.jobs == []
    assert shell.left == []


def test_that_is_the_parent_where_no_other_is_named(shell: Shell) -> None:
    script = '"$@" acquire -o json; read line'
    with shell.started("sh", "-c", script, "sh", *TIMESLICE) as parent:
        assert parent.stdout is not None
        acquired = json.loads(parent.stdout.readline())
        assert acquired["bound"] == parent.pid
        assert shell("status", "--ticket", acquired["ticket"]).returncode == 0
        parent.communicate()
    assert wait_gone(acquired["keeper"])
    assert shell.jobs == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_one_that_is_ended_while_it_waits_leaves_nothing(shell: Shell, number: signal.Signals) -> None:
    shell.coordinator.stranger()
    with shell.started(*TIMESLICE, "acquire", "--pid", str(shell.parent.pid)) as waiting:
        until(lambda: shell.jobs == ["other", "a"])
        waiting.send_signal(number)
        waiting.communicate(timeout=60)
    until(lambda: shell.jobs == ["other"])
    until(lambda: not any(name.endswith(".sock") for name in shell.left))


def test_no_turn_in_time(shell: Shell) -> None:
    shell.coordinator.stranger()
    done = shell("acquire", "--wait", "0.3", "--pid", str(shell.parent.pid))
    assert (done.returncode, done.stdout) == (Exit.NO_TURN, "")
    assert "timeslice get queue" in done.stderr
    assert shell.jobs == ["other"]


def test_a_lost_turn_is_said(shell: Shell) -> None:
    ticket, keeper = str((acquired := shell.acquire())["ticket"]), int(acquired["keeper"])
    shell.coordinator.evict()
    until(lambda: shell("status", "--ticket", ticket).returncode == Exit.LOST)
    assert "lost" in shell("status").stdout
    given_back = shell("yield", "--ticket", ticket)
    assert given_back.returncode == Exit.LOST
    assert "operator" in given_back.stderr or "by hand" in given_back.stderr
    assert wait_gone(keeper)


def test_a_lost_turn_that_nobody_asks_for_is_not_taken_again(shell: Shell) -> None:
    """A client stands in the queue again for a call that may hang; behind a keeper there is none."""
    shell.acquire()
    shell.coordinator.expire()
    until(lambda: sum(entry.startswith("acquire") for entry in shell.coordinator.log) == 2)
    until(lambda: shell.jobs == [])


def test_a_keeper_that_was_killed_keeps_nothing(shell: Shell) -> None:
    acquired = shell.acquire()
    os.kill(int(acquired["keeper"]), signal.SIGKILL)
    assert wait_gone(int(acquired["keeper"]))
    assert shell("yield", "--ticket", str(acquired["ticket"])).returncode == Exit.NOT_FOUND
    assert shell.left == []
    shell.coordinator.expire()  # as its time to live does


def test_whoever_asks_and_leaves_does_not_disturb_it(shell: Shell) -> None:
    ticket = str(shell.acquire()["ticket"])
    for words in (b"", b"nonsense\n", b"{"):
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(str(shell.folder / "timeslice" / f"{ticket}.sock"))
            rude.sendall(words)
    assert shell("status", "--ticket", ticket).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("acquire", "--pid", "2147483647"), "no process"),
        (("acquire", "--job", ""), "TIMESLICE_JOB_ID"),
        (("yield", "--ticket", "../../etc/passwd"), "no ticket"),
    ],
)
def test_what_cannot_be_right_is_said(shell: Shell, arguments: tuple[str, ...], text: str) -> None:
    done = shell(*arguments)
    assert done.returncode == Exit.USAGE
    assert text in done.stderr


def test_a_folder_that_others_may_enter_is_not_used(shell: Shell) -> None:
    (shell.folder / "timeslice").mkdir(mode=0o755)
    done = shell("acquire", "--pid", str(shell.parent.pid))
    assert done.returncode == Exit.USAGE
    assert "alone" in done.stderr
    (shell.folder / "timeslice").rmdir()


def test_status_shows_coordinators_groups_and_tickets(shell: Shell) -> None:
    acquired = shell.acquire()
    shell.coordinator.stop_replica(1)
    away = shell.coordinator.endpoints[1]
    shown = shell("status")
    assert shown.returncode == 0
    coordinators, groups, tickets = (part.splitlines() for part in shown.stdout.split("\n\n"))
    assert [line.split()[1] for line in coordinators[1:]] == ["answers", "-"]
    assert away in coordinators[2]
    assert groups[1].split()[0] == "g"
    assert tickets[1].split()[:5] == [acquired["ticket"], "g", "a", "101", "held"]

    form = json.loads(shell("status", "-o", "json").stdout)
    assert [held["ticket"] for held in form["tickets"]] == [acquired["ticket"]]
    assert [bool(one["error"]) for one in form["coordinators"]] == [False, True]

    shell.coordinator.stop_replica(0)
    assert shell("status", "--timeout", "2").returncode == Exit.UNAVAILABLE
    shell.coordinator.expire()
