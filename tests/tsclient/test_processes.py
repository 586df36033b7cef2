# SPDX-License-Identifier: Apache-2.0
"""What the operating system does to a process that uses the library: signals, forks, its end."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.tsclient.child import child
from tests.tsclient.fake_coordinator import FakeCoordinator
from tests.tsclient.waiting import until

IMPORTS = "import os, sys, tsclient as ts\n"


@pytest.mark.parametrize("where", ["waiting", "in the block"])
def test_an_interrupt_leaves_no_ticket(coordinator: FakeCoordinator, where: str) -> None:
    if where == "waiting":
        coordinator.stranger()
    program = IMPORTS + (
        "client = ts.connect()\n"
        "import threading\n"
        "try:\n"
        "    with client.accelerators('g', timeout=60, on_progress=lambda p: print(p)) as turn:\n"
        "        print('held')\n"
        "        threading.Event().wait(60)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
        "sys.stdin.readline()\n"  # the process goes on: its end must not be what removes the ticket
        "threading.Event().wait(60)\n"
    )
    others = ["other"] if where == "waiting" else []
    with child(program, coordinator.endpoints) as process:
        if where == "waiting":
            assert process.line() == "g: place 1"
        else:
            assert process.line() == "g: place 0"
            assert process.line() == "held"
        assert len(coordinator.queue) == len(others) + 1
        process.process.send_signal(signal.SIGINT)
        assert process.line() == "interrupted"
        until(lambda: [t.job for t in coordinator.queue] == others)
        assert process.process.poll() is None


def test_the_end_of_the_program_gives_everything_back(coordinator: FakeCoordinator) -> None:
    program = IMPORTS + "turn = ts.acquire('g', timeout=60)\nprint('held')\n"
    with child(program, coordinator.endpoints) as process:
        assert process.line() == "held"
        status, _, err = process.rest()
    assert (status, err) == (0, "")
    assert (coordinator.queue, coordinator.sessions) == ([], {})


def test_a_program_ends_in_time_though_nobody_answers(coordinator: FakeCoordinator) -> None:
    program = IMPORTS + "turn = ts.acquire('g', timeout=60)\nprint('held')\nsys.stdin.readline()\n"
    with child(program, coordinator.endpoints) as process:
        assert process.line() == "held"
        coordinator.stop_replica(0)
        coordinator.stop_replica(1)
        status, _, _ = process.rest(30)
    assert status == 0


def test_a_program_ends_though_another_thread_still_waits(coordinator: FakeCoordinator) -> None:
    coordinator.stranger()
    program = IMPORTS + (
        "import threading\n"
        "told = threading.Event()\n"
        "threading.Thread(target=lambda: ts.acquire('g', on_progress=lambda p: told.set()), daemon=True).start()\n"
        "told.wait(60)\n"
    )
    with child(program, coordinator.endpoints) as process:
        status, _, _ = process.rest(30)
    assert status == 0
    assert [t.job for t in coordinator.queue] == ["other"]


def test_a_forked_child_has_no_part_in_its_parents_session_and_takes_nothing_from_it(
    coordinator: FakeCoordinator,
) -> None:
    program = IMPORTS + (
        "client = ts.connect()\n"
        "with client.accelerators('g', timeout=60) as turn:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        for use in (turn.check, turn.yield_, lambda: client.acquire('g'), client.close):\n"
        "            try:\n"
        "                use()\n"
        "            except ts.ForkedClient as error:\n"
        "                print(error.reason)\n"
        "        sys.exit(3)\n"  # by way of the block's end, and of all that runs at exit
        "    _, status = os.waitpid(child, 0)\n"
        "    print('child ended with', os.waitstatus_to_exitcode(status))\n"
        "    turn.check()\n"
        "    print('still held')\n"
        "    sys.stdin.readline()\n"
    )
    with child(program, coordinator.endpoints) as process:
        assert [process.line() for _ in range(6)] == [
            *["FORKED_CLIENT"] * 4,
            "child ended with 3",
            "still held",
        ]
        assert [t.job for t in coordinator.queue] == ["a"]


def test_a_forked_child_of_a_holder_may_have_a_client_of_its_own(coordinator: FakeCoordinator) -> None:
    program = IMPORTS + (
        "with ts.accelerators('g', timeout=60) as turn:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        try:\n"
        "            ts.acquire('g', timeout=60)\n"
        "        except ts.AlreadyQueued as error:\n"
        "            print(error.reason)\n"  # it is the same job
        "        ts.acquire('g', timeout=60, job='child', on_progress=lambda p: print(p)).yield_()\n"
        "        sys.exit(3)\n"
        "    sys.stdin.readline()\n"
        "_, status = os.waitpid(child, 0)\n"
        "print('child ended with', os.waitstatus_to_exitcode(status))\n"
    )
    with child(program, coordinator.endpoints) as process:
        assert [process.line() for _ in range(2)] == ["ALREADY_QUEUED", "g: place 1"]
        assert [t.job for t in coordinator.queue] == ["a", "child"]
        status, out, err = process.rest()
    assert (status, out.splitlines()[-1], err) == (0, "child ended with 3", "")


def test_what_a_holder_forks_for_other_work_does_not_crash(coordinator: FakeCoordinator) -> None:
    # Under gRPC's own handlers about one child in eight does, as soon as a thread is in gRPC.
    program = IMPORTS + (
        "turn = ts.acquire('g', timeout=60)\n"
        "ends = set()\n"
        "for _ in range(60):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        os._exit(3)\n"
        "    ends.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "turn.check()\n"
        "print(ends, os.environ.get('GRPC_ENABLE_FORK_SUPPORT'))\n"
    )
    with child(program, coordinator.endpoints) as process:
        assert process.line() == "{3} None"


def test_a_child_forked_before_the_first_use_has_a_client_of_its_own(coordinator: FakeCoordinator) -> None:
    program = IMPORTS + (
        "child = os.fork()\n"
        "if child == 0:\n"
        "    with ts.accelerators('g', timeout=60, job='child') as turn:\n"
        "        print(turn.job)\n"
        "    sys.exit(0)\n"
        "_, status = os.waitpid(child, 0)\n"
        "print('child ended with', os.waitstatus_to_exitcode(status))\n"
        "with ts.accelerators('g', timeout=60) as turn:\n"
        "    print(turn.job)\n"
    )
    with child(program, coordinator.endpoints) as process:
        assert [process.line() for _ in range(3)] == ["child", "child ended with 0", "a"]
        assert process.rest()[0] == 0


def test_importing_the_library_loads_neither_grpc_nor_protobuf() -> None:
    program = (
        "import sys, tsclient\n"
        "unwanted = ('grpc', 'google.protobuf', 'rich', 'coordinator', 'ledger')\n"
        "print([name for name in unwanted if name in sys.modules])\n"
    )
    with child(program, ["h:1"]) as process:
        assert process.line() == "[]"


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_program_whose_standard_streams_are_closed_has_its_turns(
    coordinator: FakeCoordinator, tmp_path: Path, closed: tuple[int, ...]
) -> None:
    # The next files that such a program opens have those numbers, and a child's own streams would take their place.
    said = tmp_path / "said"
    program = (
        "import os, sys\n"
        f"[os.close(one) for one in {closed}]\n"
        "import tsclient as ts\n"
        "turn = ts.acquire('g', timeout=60)\n"
        "turn.check()\n"
        "turn.yield_()\n"
        f"open({str(said)!r}, 'w').write('done')\n"
    )
    with child(program, coordinator.endpoints) as process:
        process.rest()
    assert said.exists() and said.read_text() == "done"
