# SPDX-License-Identifier: Apache-2.0
"""The helper process: what it keeps alive, what it lets go, and what becomes of a turn when either side is harmed."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tsclient as ts
from tests.tsclient.child import ROOT, child
from tests.tsclient.fake_coordinator import FakeCoordinator
from tests.tsclient.processes import helper_pid, helpers_of, state, stopped
from tests.tsclient.waiting import until
from tsclient.helper import hub, notes

Connect = Callable[..., ts.Client]

IMPORTS = "import ctypes, os, signal, sys, time, tsclient as ts\n"
HOLD = IMPORTS + "turn = ts.acquire('g', timeout=60)\nprint('held')\n"
ASK = (
    "try:\n    turn.check()\nexcept ts.LockLost as error:\n    print('lost', error.reason)\nelse:\n    print('held')\n"
)
READ = "sys.stdin.readline()\n"


@pytest.fixture
def own_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process starts with no helper."""
    hubs = hub._Hubs()
    monkeypatch.setattr(hub, "_hubs", hubs)


# ---------------------------------------------------------------- what is in which process


def test_the_jobs_process_has_neither_grpc_nor_protobuf(coordinator: FakeCoordinator) -> None:
    program = HOLD + (
        "turn.check()\n"
        "turn.yield_()\n"
        "print([name for name in ('grpc', 'google.protobuf', 'asyncio', 'rich') if name in sys.modules])\n"
    )
    with child(program, coordinator.endpoints) as process:
        assert [process.line() for _ in range(2)] == ["held", "[]"]


def test_a_process_has_one_helper_whatever_the_number_of_its_clients(
    coordinator: FakeCoordinator, connect_by_helper: Connect
) -> None:
    for job in "abc":
        connect_by_helper(job)
    assert len(helpers_of(os.getpid())) == 1


def test_a_helper_has_nothing_open_that_is_its_parents(
    coordinator: FakeCoordinator, connect_by_helper: Connect
) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    connect_by_helper()
    os.close(writing)
    assert os.read(reading, 1) == b""  # nobody else has the other end
    os.close(reading)


def test_a_helper_without_sessions_ends(
    coordinator: FakeCoordinator, connect_by_helper: Connect, own_hub: None
) -> None:
    before = set(helpers_of(os.getpid()))
    client = connect_by_helper()
    (helper,) = set(helpers_of(os.getpid())) - before
    client.close()
    until(lambda: state(helper) == "gone")  # reaped, too
    connect_by_helper().acquire("g", timeout=30).yield_()  # and another is there when it is wanted


# ---------------------------------------------------------------- the parent is harmed


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)\n", id="killed"),
        pytest.param("os._exit(0)\n", id="exits without a word"),
        pytest.param("os.execv(sys.executable, [sys.executable, '-c', 'input()'])\n", id="exec"),
        pytest.param(
            # A child that knows nothing of Python's fork handlers keeps the socket open.
            "if ctypes.PyDLL(None).fork() == 0: time.sleep(60)\nos.kill(os.getpid(), signal.SIGKILL)\n",
            id="killed, with a child that has all its files",
        ),
    ],
)
def test_the_end_of_its_program_ends_the_session_at_once(coordinator: FakeCoordinator, end: str) -> None:
    with child(HOLD + READ + end, coordinator.endpoints, TIMESLICE_TTL="600") as process:
        assert process.line() == "held"
        helper = helper_pid(process.process.pid)
        process.enter()
        until(lambda: coordinator.queue == [])
        until(lambda: state(helper) in ("gone", "Z"))
        assert "close abandoned" in coordinator.log  # lost, not given back


def test_an_exec_is_seen_though_the_socket_stays_open(coordinator: FakeCoordinator) -> None:
    # Same pid, same start, and a child that no fork handler of Python's has seen keeps the socket.
    end = "if ctypes.PyDLL(None).fork() == 0: time.sleep(60)\nos.execv('/bin/sleep', ['sleep', '60'])\n"
    with child(HOLD + READ + end, coordinator.endpoints, TIMESLICE_TTL="6") as process:
        assert process.line() == "held"
        process.enter()
        until(lambda: "close abandoned" in coordinator.log)
        assert coordinator.queue == []


def test_a_lost_turn_that_nobody_has_any_more_leaves_the_queue(
    coordinator: FakeCoordinator, connect_by_helper: Connect
) -> None:
    turn = connect_by_helper().acquire("g", timeout=30)
    coordinator.evict()
    until(lambda: [t.token for t in coordinator.queue] == [102])
    while not turn.lost:
        pass
    del turn
    gc.collect()
    until(lambda: coordinator.queue == [])


def test_a_holder_that_is_stopped_for_too_long_has_lost_and_is_told_when_it_wakes_up(
    coordinator: FakeCoordinator,
) -> None:
    with child(HOLD + READ + ASK, coordinator.endpoints, TIMESLICE_TTL="2") as process:
        assert process.line() == "held"
        with stopped(process.process.pid):
            threading.Event().wait(2.5)  # its time to live has to pass
            # It was not given back: whatever it was doing on the accelerators it has not finished.
            assert [t.job for t in coordinator.queue] == ["a"]
            coordinator.expire()
            assert coordinator.queue == []
        process.enter()
        assert process.line() == "lost TURN_LOST"
    until(lambda: coordinator.queue == [])


def test_no_beat_is_sent_for_a_process_that_is_stopped(coordinator: FakeCoordinator) -> None:
    with child(HOLD + READ + ASK, coordinator.endpoints, TIMESLICE_TTL="2") as process:
        assert process.line() == "held"
        with stopped(process.process.pid):
            beats = coordinator.log.count("beat")
            threading.Event().wait(2.5)  # three beats long
            assert coordinator.log.count("beat") <= beats + 1  # one may have been on its way
        until(lambda: coordinator.log.count("beat") > beats + 1)  # the session itself goes on


def test_a_holder_that_is_stopped_for_a_moment_loses_nothing(coordinator: FakeCoordinator) -> None:
    with child(HOLD + READ + ASK, coordinator.endpoints, TIMESLICE_TTL="30") as process:
        assert process.line() == "held"
        with stopped(process.process.pid):
            pass
        process.enter()
        assert process.line() == "held"


def test_a_call_that_holds_the_interpreters_lock_costs_no_turn(coordinator: FakeCoordinator) -> None:
    hold_the_lock = "ctypes.PyDLL(None).usleep(4_000_000)\n"  # twice the time to live
    with child(HOLD + hold_the_lock + ASK, coordinator.endpoints, TIMESLICE_TTL="2") as process:
        assert [process.line() for _ in range(2)] == ["held", "held"]


def test_in_process_such_a_call_does_cost_the_turn(coordinator: FakeCoordinator) -> None:
    hold_the_lock = "ctypes.PyDLL(None).usleep(4_000_000)\n"
    variables = {"TIMESLICE_TTL": "2", "TIMESLICE_IN_PROCESS": "1"}
    with child(HOLD + hold_the_lock + ASK, coordinator.endpoints, **variables) as process:
        assert [process.line() for _ in range(2)] == ["held", "lost TURN_LOST"]


@pytest.mark.parametrize("days", [-1, 1])
def test_a_clock_that_is_set_changes_nothing(coordinator: FakeCoordinator, tmp_path: Path, days: int) -> None:
    # Each process of Python's that begins here, the helper among them, has its wall clock set every second look.
    (tmp_path / "sitecustomize.py").write_text(
        "import itertools, time\n"
        f"now, jump = time.time, itertools.cycle((0, {days} * 86400))\n"
        "time.time = lambda: now() + next(jump)\n"
        "time.time_ns = lambda: int(time.time() * 1e9)\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "protos")])
    look = "print(abs(time.time() - time.time()) > 80000)\n"
    with child(HOLD + look + READ + ASK, coordinator.endpoints, TIMESLICE_TTL="2", PYTHONPATH=path) as process:
        assert [process.line() for _ in range(2)] == ["held", "True"]
        beats = coordinator.log.count("beat")
        until(lambda: coordinator.log.count("beat") >= beats + 6)  # two times to live
        assert coordinator.log.count("open") == 1
        process.enter()
        assert process.line() == "held"


def test_a_terminals_and_a_schedulers_signals_are_for_the_job_alone(coordinator: FakeCoordinator) -> None:
    program = IMPORTS + "signal.signal(signal.SIGTERM, lambda *_: print('told'))\n" + HOLD + READ + READ + ASK
    with child(program, coordinator.endpoints, TIMESLICE_TTL="30") as process:
        assert process.line() == "held"
        helper = helper_pid(process.process.pid)
        assert os.getpgid(helper) != os.getpgid(process.process.pid)
        os.kill(helper, signal.SIGTERM)
        os.kill(process.process.pid, signal.SIGTERM)
        assert process.line() == "told"
        process.enter()
        process.enter()
        assert process.line() == "held"
        assert helper_pid(process.process.pid) == helper


# ---------------------------------------------------------------- the helper is harmed


def test_a_killed_helper_costs_no_turn(coordinator: FakeCoordinator, connect_by_helper: Connect) -> None:
    client = connect_by_helper()
    turn = client.acquire("g", timeout=30)
    first = helper_pid()
    os.kill(first, signal.SIGKILL)
    until(lambda: "resume" in coordinator.log)
    turn.check()
    assert helper_pid() != first
    assert [t.token for t in coordinator.queue] == [turn.token]
    turn.yield_()
    assert coordinator.queue == []
    assert coordinator.log.count("open") == 1


def test_a_killed_helper_costs_no_place(coordinator: FakeCoordinator, connect_by_helper: Connect) -> None:
    coordinator.stranger()
    client = connect_by_helper()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.acquire, "g", timeout=60)
        until(lambda: len(coordinator.queue) == 2)
        os.kill(helper_pid(), signal.SIGKILL)
        until(lambda: "resume" in coordinator.log)
        coordinator.stranger_leaves()
        waiting.result(timeout=60).yield_()
    assert coordinator.queue == []


def test_a_helper_that_is_killed_before_it_has_said_anything_of_a_place_costs_none(
    coordinator: FakeCoordinator, connect_by_helper: Connect
) -> None:
    coordinator.stranger()
    coordinator.faults.tell_positions = False  # so that there is no news of it, and only a note
    clients = [connect_by_helper(job) for job in "abc"]
    with ThreadPoolExecutor(len(clients)) as pool:
        turns = [pool.submit(lambda client=client: client.acquire("g", timeout=60).yield_()) for client in clients]
        until(lambda: len(coordinator.queue) == 1 + len(clients))
        places = [ticket.job for ticket in coordinator.queue]
        os.kill(helper_pid(), signal.SIGKILL)
        until(lambda: coordinator.log.count("still wants 1") == len(clients))
        assert [ticket.job for ticket in coordinator.queue] == places
        coordinator.stranger_leaves()
        for turn in turns:
            turn.result(timeout=60)
    assert coordinator.log.count("acquire 1") == len(clients)
    assert coordinator.queue == []


def test_a_process_may_have_more_clients_than_there_is_room_for_notes(
    coordinator: FakeCoordinator, connect_by_helper: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.faults.tell_positions = False
    monkeypatch.setattr(hub._hubs.get(), "_places", deque([notes.PLACES - 1]))
    clients = [connect_by_helper(job) for job in "ab"]
    turn = clients[0].acquire("g", timeout=30)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(clients[1].acquire, "g", timeout=60)
        until(lambda: len(coordinator.queue) == 2)
        os.kill(helper_pid(), signal.SIGKILL)
        until(lambda: "still wants 1" in coordinator.log)
        turn.yield_()
        waiting.result(timeout=60).yield_()
    assert coordinator.queue == []


def test_what_is_asked_while_there_is_no_helper_is_done_by_the_next(
    coordinator: FakeCoordinator, connect_by_helper: Connect
) -> None:
    client = connect_by_helper()
    turn = client.acquire("g", timeout=30)
    helper = helper_pid()
    os.kill(helper, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        yielding = pool.submit(turn.yield_)
        until(lambda: client._engine._records[turn._key].returning)
        os.kill(helper, signal.SIGKILL)
        assert yielding.result(timeout=60) == 0
    assert coordinator.queue == []


def test_a_lost_turn_that_nobody_noticed_keeps_its_place_with_the_next_helper(
    coordinator: FakeCoordinator, connect_by_helper: Connect
) -> None:
    client = connect_by_helper()
    turn = client.acquire("g", timeout=30)
    coordinator.evict()
    until(lambda: [t.token for t in coordinator.queue] == [turn.token + 1])
    os.kill(helper_pid(), signal.SIGKILL)
    until(lambda: "resume" in coordinator.log)
    assert [t.token for t in coordinator.queue] == [turn.token + 1]
    with pytest.raises(ts.Evicted):
        turn.check()
    until(lambda: coordinator.queue == [])


def test_a_helper_whose_socket_is_lost_is_replaced(coordinator: FakeCoordinator, connect_by_helper: Connect) -> None:
    client = connect_by_helper()
    turn = client.acquire("g", timeout=30)
    first = helper_pid()
    ours = hub._hubs.get()._socket
    assert ours is not None
    ours.shutdown(2)  # as by a program that closes files that it does not know
    until(lambda: "resume" in coordinator.log)
    turn.yield_()
    until(lambda: state(first) == "gone")
    assert "close abandoned" not in coordinator.log


@pytest.mark.parametrize(
    ("program", "words"), [("/nowhere/python", "No helper process can be started"), ("/bin/false", "without a word")]
)
def test_a_helper_that_cannot_run_is_told_of(
    coordinator: FakeCoordinator,
    connect_by_helper: Connect,
    own_hub: None,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    words: str,
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(ts.HelperFailed, match=words):
        connect_by_helper()


# ---------------------------------------------------------------- what follows from a loss


def test_on_loss_kill_ends_the_process_whatever_it_does(coordinator: FakeCoordinator) -> None:
    program = HOLD + "print('now', flush=True)\nctypes.PyDLL(None).usleep(60_000_000)\n"
    with child(program, coordinator.endpoints, TIMESLICE_ON_LOSS="kill") as process:
        assert [process.line() for _ in range(2)] == ["held", "now"]
        coordinator.evict()
        assert process.rest(30)[0] == -signal.SIGKILL


def test_a_callback_is_told_of_a_loss_as_soon_as_there_is_one(
    coordinator: FakeCoordinator, connect_by_helper: Connect
) -> None:
    told: list[ts.LockLost] = []
    turn = connect_by_helper().acquire("g", timeout=30, on_lost=told.append)
    coordinator.evict()
    until(lambda: len(told) == 1)
    assert isinstance(told[0], ts.Evicted)
    assert turn.lost


def test_what_a_callback_raises_harms_nobody(
    coordinator: FakeCoordinator, connect_by_helper: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(error: ts.LockLost) -> None:
        raise ZeroDivisionError

    client = connect_by_helper()
    turn = client.acquire("g", timeout=30, on_lost=broken)
    coordinator.evict()
    until(lambda: "ZeroDivisionError" in caplog.text)
    with pytest.raises(ts.Evicted):
        turn.check()
    client.acquire("g", timeout=30).yield_()
