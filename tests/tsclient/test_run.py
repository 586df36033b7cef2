# SPDX-License-Identifier: Apache-2.0
"""`timeslice run`: a command under the lock, with its signals, its exit status and its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from tests.support.processes import wait_gone
from tests.tsclient.child import ROOT, Child
from tests.tsclient.fake_coordinator import FakeCoordinator
from tests.tsclient.waiting import until
from timeslice_proto.v1 import coordinator_pb2 as pb
from tsclient.cli.exits import RunExit
from tsclient.cli.supervised import FORWARDED


class Coordinator(FakeCoordinator):
    """One that processes can be registered with."""

    def __init__(self) -> None:
        super().__init__(replicas=1)
        self.registered: list[pb.RegisterProcessesRequest] = []
        self.trace = Path()  # a file that the command makes
        self.ran_before = False  # whether it was there when the first were registered

    async def RegisterProcesses(  # noqa: N802
        self, request: pb.RegisterProcessesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.RegisterProcessesResponse:
        if request.node != "n":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such node")
        if not self.registered:
            self.ran_before = self.trace.exists()
        self.registered.append(request)
        return pb.RegisterProcessesResponse()

    @property
    def pids(self) -> set[int]:
        """Of the last registration."""
        return {process.pid for process in self.registered[-1].processes} if self.registered else set()


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    fake = Coordinator()  # type: ignore[abstract]  # what it lacks answers UNIMPLEMENTED
    fake.trace = tmp_path / "ran"
    yield fake
    fake.stop()


@contextmanager
def started(coordinator: Coordinator, *arguments: str, before: tuple[str, ...] = ()) -> Iterator[Child]:
    """`timeslice run` with these arguments, for job "a" in group "g"."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "protos")]),
        "TIMESLICE_ENDPOINTS": ",".join(coordinator.endpoints),
    }
    command = [*before, sys.executable, "-m", "tsclient.cli.main", "run", "--group", "g", "--job", "a", *arguments]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


def run(coordinator: Coordinator, *arguments: str) -> tuple[int, str, str]:
    with started(coordinator, *arguments) as child:
        return child.rest()


def sh(script: str) -> tuple[str, ...]:
    return ("--", "sh", "-c", script)


def test_the_command_is_told_its_turn_and_its_status_comes_back(coordinator: Coordinator) -> None:
    status, out, err = run(coordinator, *sh("echo $TIMESLICE_GROUP $TIMESLICE_JOB_ID $TIMESLICE_FENCING_TOKEN; exit 7"))
    assert (status, out, err) == (7, "g a 101\n", "")
    assert coordinator.queue == []


def test_options_of_the_command_are_its_own(coordinator: Coordinator) -> None:
    assert run(coordinator, "--wait", "30", "--", "echo", "--group", "x", "--", "y")[1] == "--group x -- y\n"


def test_it_runs_while_it_has_the_turn(coordinator: Coordinator, tmp_path: Path) -> None:
    coordinator.stranger()
    with started(coordinator, *sh("touch ran; echo begun; read line"), before=("env", "-C", str(tmp_path))) as it:
        until(lambda: any(ticket.job == "a" for ticket in coordinator.queue))
        assert not coordinator.trace.exists()
        coordinator.stranger_leaves()
        assert it.line() == "begun"
        assert [(ticket.job, ticket.token) for ticket in coordinator.queue] == [("a", 102)]
        assert it.rest()[0] == 1  # of `read`, at the end of its input
    assert coordinator.queue == []


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (sh("kill -KILL $$"), 128 + signal.SIGKILL),
        (("--", "no-such-program"), RunExit.NO_SUCH_COMMAND),
        (("--", "/etc/passwd"), RunExit.CANNOT_EXECUTE),
        ((), RunExit.FAILED),
        (("--wait", "-1", "--", "true"), RunExit.FAILED),
        (("--endpoints", "127.0.0.1:1", "--timeout", "0.5", "--", "true"), RunExit.FAILED),
    ],
)
def test_other_ends(coordinator: Coordinator, arguments: tuple[str, ...], status: int) -> None:
    assert run(coordinator, *arguments)[0] == status
    assert coordinator.queue == []


def test_a_turn_that_does_not_come_in_time(coordinator: Coordinator) -> None:
    coordinator.stranger()
    assert run(coordinator, "--wait", "0.3", *sh("echo ran"))[:2] == (RunExit.NO_TURN, "")
    assert [ticket.job for ticket in coordinator.queue] == ["other"]


@pytest.mark.parametrize("number", FORWARDED)
def test_signals_are_forwarded(coordinator: Coordinator, number: signal.Signals) -> None:
    script = f"trap 'echo told; exit 5' {number.name[3:]}; echo ready; while :; do sleep 0.05; done"
    heard = ("env", f"--default-signal={number.name[3:]}")  # though whoever runs the tests may ignore it
    with started(coordinator, *sh(script), before=heard) as it:
        assert it.line() == "ready"
        it.process.send_signal(number)
        assert it.rest()[:2] == (5, "told\n")
    assert coordinator.queue == []


def test_a_signal_that_was_ignored_stays_so(coordinator: Coordinator) -> None:
    """As under nohup(1): what is not for it is not for the command, though that would listen."""
    listening = (
        "import signal, threading\n"
        "told, enough = [], threading.Event()\n"
        "def hear(number, _):\n    told.append(number); number == signal.SIGUSR1 and enough.set()\n"
        "signal.signal(signal.SIGHUP, hear), signal.signal(signal.SIGUSR1, hear)\n"
        "print('ready', flush=True)\n"
        "while not enough.wait(0.05): pass\n"
        "print(told == [signal.SIGUSR1])"
    )
    ignoring = ("sh", "-c", "trap '' HUP; exec \"$@\"", "sh")
    with started(coordinator, "--", sys.executable, "-c", listening, before=ignoring) as it:
        assert it.line() == "ready"
        it.process.send_signal(signal.SIGHUP)
        it.process.send_signal(signal.SIGUSR1)
        assert it.rest()[:2] == (0, "True\n")


def test_ctrl_c_at_a_terminal_reaches_the_command_once(coordinator: Coordinator) -> None:
    """The terminal sends it to both; were it forwarded as well, the command would take it for impatience."""
    counting = (
        "import signal, sys, time\n"
        "count = 0\n"
        "def told(*_):\n    global count; count += 1\n"
        "signal.signal(signal.SIGINT, told)\n"
        "print('ready', flush=True)\n"
        "while not count: time.sleep(0.01)\n"
        "time.sleep(1)\n"
        "print('told', count, flush=True)"
    )
    terminal = (sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])")
    with started(coordinator, "--", sys.executable, "-c", counting, before=terminal) as it:
        assert it.line().startswith("timeslice: g: place")  # a person is told
        while (line := it.line()) != "ready":
            assert line
        assert it.process.stdin is not None
        it.process.stdin.write("\x03")
        it.process.stdin.flush()
        assert it.line().endswith("told 1")  # behind the terminal's echo


def test_told_to_end_while_it_waits_it_leaves_no_ticket(coordinator: Coordinator) -> None:
    coordinator.stranger()
    with started(coordinator, *sh("echo ran")) as it:
        until(lambda: any(ticket.job == "a" for ticket in coordinator.queue))
        it.process.terminate()
        assert it.rest()[:2] == (128 + signal.SIGTERM, "")
    assert [ticket.job for ticket in coordinator.queue] == ["other"]


def test_a_lost_turn_stops_the_command_and_its_children(coordinator: Coordinator) -> None:
    script = "(trap 'exit 0' TERM; echo $(sh -c 'echo $PPID'); while :; do sleep 0.05; done) & echo $$; wait"
    with started(coordinator, *sh(script)) as it:
        pids = [int(it.line()), int(it.line())]
        coordinator.evict()
        status, _, err = it.rest()
        assert status == RunExit.LOST
        assert "lost" in err
        assert all(wait_gone(pid) for pid in pids)


def test_one_that_does_not_listen_is_killed_after_the_grace(coordinator: Coordinator) -> None:
    with started(coordinator, "--grace", "0.2", *sh("trap '' TERM; echo ready; while :; do sleep 0.05; done")) as it:
        assert it.line() == "ready"
        coordinator.evict()
        assert it.rest()[0] == RunExit.LOST


def test_a_command_may_be_kept_though_the_turn_is_lost(coordinator: Coordinator) -> None:
    with started(coordinator, "--on-loss", "keep", *sh("echo ready; read line; exit 3")) as it:
        assert it.line() == "ready"
        coordinator.evict()
        assert it.process.stderr is not None
        assert "goes on" in it.process.stderr.readline()
        assert it.rest()[0] == 3


def test_its_processes_are_registered_before_they_run_and_as_they_come_and_go(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    script = "touch ran; echo $$; read line; sleep 1000 & echo $!; read line; kill $!; wait; read line"
    with started(coordinator, "--node", "n", *sh(script), before=("env", "-C", str(tmp_path))) as it:
        assert it.process.stdin is not None
        root = int(it.line())
        assert not coordinator.ran_before
        first = coordinator.registered[0]
        assert (first.group, first.job, [one.pid for one in first.processes]) == ("g", "a", [root])
        for expected in ("one more", "one less"):
            it.process.stdin.write("\n")
            it.process.stdin.flush()
            wanted = {root, int(it.line())} if expected == "one more" else {root}
            until(lambda wanted=wanted: coordinator.pids == wanted)  # type: ignore[misc]
        it.rest()
    assert coordinator.pids == set()


def test_a_node_that_is_not_the_groups_is_said_before_anything_runs(coordinator: Coordinator) -> None:
    status, out, err = run(coordinator, "--node", "elsewhere", *sh("echo ran"))
    assert (status, out) == (RunExit.FAILED, "")
    assert "no such node" in err
    assert coordinator.queue == []
