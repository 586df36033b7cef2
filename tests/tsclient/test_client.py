# SPDX-License-Identifier: Apache-2.0
"""The blocking client over real sockets: turns, losses, timeouts, threads, broken streams."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import tsclient as ts
from tests.tsclient.fake_coordinator import FakeCoordinator
from tests.tsclient.processes import helper_pid, stopped
from tests.tsclient.waiting import until
from tsclient.client import default

Connect = Callable[..., ts.Client]


def _resumed(coordinator: FakeCoordinator, times: int) -> bool:
    return coordinator.log.count("resume") == times


def _callers(client: ts.Client, count: int) -> bool:
    """Whether so many of this process wait in the client."""
    return client._engine.waiting == count


def test_a_turn_for_a_block(coordinator: FakeCoordinator, connect: Connect) -> None:
    client = connect()
    with client.accelerators("g", timeout=30) as turn:
        assert (turn.group, turn.job, turn.restored, turn.lost) == ("g", "a", True, False)
        assert turn.token == 101
        assert 0 <= turn.waited < 30
        turn.check()
    assert coordinator.queue == []
    with pytest.raises(ts.NotHolder):
        turn.check()
    with pytest.raises(ts.NotHolder):
        turn.yield_()


def test_a_turn_for_each_call_of_a_function(coordinator: FakeCoordinator, connect: Connect) -> None:
    held = []

    @connect().accelerators("g", timeout=30)
    def work(x: int) -> int:
        held.append(coordinator.queue[0].token)
        return x + 1

    assert (work(1), work(2)) == (2, 3)
    assert held == [101, 102]
    assert work.__name__ == "work"
    assert coordinator.queue == []


def test_a_decorated_function_must_not_return_before_it_has_run(connect: Connect) -> None:
    async def work() -> None: ...

    with pytest.raises(TypeError, match="with"):
        connect().accelerators("g")(work)


def test_yield_says_how_many_wait_and_may_come_before_the_end_of_the_block(
    coordinator: FakeCoordinator, connect: Connect
) -> None:
    with connect().acquire("g", timeout=30) as turn:
        assert turn.yield_() == 0
    assert coordinator.queue == []


def test_progress_is_told_in_the_callers_thread(coordinator: FakeCoordinator, connect: Connect) -> None:
    told: list[tuple[int, object]] = []

    def on_progress(progress: ts.Progress) -> None:
        told.append((threading.get_ident(), progress))
        coordinator.stranger_leaves()

    coordinator.stranger()
    connect().acquire("g", timeout=30, on_progress=on_progress).yield_()
    assert told == [(threading.get_ident(), ts.Queued("g", 1))]


def test_what_a_progress_callback_raises_ends_the_wait_and_leaves_no_ticket(
    coordinator: FakeCoordinator, connect: Connect
) -> None:
    def on_progress(progress: ts.Progress) -> None:
        raise ts.TimesliceError("enough")

    coordinator.stranger()
    with pytest.raises(ts.TimesliceError, match="enough"):
        connect().acquire("g", timeout=30, on_progress=on_progress)
    until(lambda: [t.job for t in coordinator.queue] == ["other"])


def test_a_refusal_is_an_error_of_its_kind(coordinator: FakeCoordinator, connect: Connect) -> None:
    coordinator.faults.refuse["a"] = ("JOB_QUARANTINED", "It could not be restored.")
    with pytest.raises(ts.JobQuarantined, match="unquarantine"):
        connect().acquire("g", timeout=30)


def test_a_timeout_leaves_no_ticket(coordinator: FakeCoordinator, connect: Connect) -> None:
    coordinator.stranger()
    client = connect()
    with pytest.raises(ts.AcquireTimeout) as caught:
        client.acquire("g", timeout=0.2)
    assert isinstance(caught.value, TimeoutError)
    assert [t.job for t in coordinator.queue] == ["other"]
    coordinator.stranger_leaves()
    client.acquire("g", timeout=30).yield_()


def test_a_cancel_that_stays_unanswered_is_made_up_for_by_the_beat(
    coordinator: FakeCoordinator, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tsclient.engine.CANCEL_WAIT", 0.1)
    coordinator.faults.answer_cancels = False
    coordinator.stranger()
    with pytest.raises(ts.AcquireTimeout):
        connect(ttl=2).acquire("g", timeout=0.1)
    until(lambda: [t.job for t in coordinator.queue] == ["other"])


def test_without_a_confirmed_beat_the_turn_is_lost_by_the_holders_own_clock(
    coordinator: FakeCoordinator, connect: Connect
) -> None:
    client = connect(ttl=2)
    turn = client.acquire("g", timeout=30)
    coordinator.faults.confirm_beats = False
    until(lambda: turn.lost)
    # The coordinators still believe in it: the client gave up before they did.
    assert coordinator.sessions
    coordinator.faults.confirm_beats = True
    with pytest.raises(ts.TurnLost) as caught:
        turn.check()
    assert (caught.value.group, caught.value.token) == ("g", turn.token)
    until(lambda: coordinator.queue == [])
    client.acquire("g", timeout=30).yield_()
    assert turn.lost  # a later beat does not bring it back


def test_the_deadline_binds_though_the_helper_stands_still(
    coordinator: FakeCoordinator, connect_by_helper: Connect
) -> None:
    client = connect_by_helper(ttl=2)
    turn = client.acquire("g", timeout=30)
    with stopped(helper_pid()):
        until(lambda: turn.lost)
        with pytest.raises(ts.TurnLost):
            turn.check()
        # It was this process's own clock that said so: the coordinators have not heard of it.
        assert [t.token for t in coordinator.queue] == [turn.token]
    until(lambda: coordinator.queue == [])
    assert turn.lost


def test_a_lost_turn_is_raised_at_the_end_of_its_block(coordinator: FakeCoordinator, connect: Connect) -> None:
    with pytest.raises(ts.Evicted, match="by hand"), connect().accelerators("g", timeout=30) as turn:  # noqa: PT012
        coordinator.evict()
        until(lambda: turn.lost)
    until(lambda: coordinator.queue == [])


def test_a_lost_turn_is_a_note_on_an_error_that_is_on_its_way(coordinator: FakeCoordinator, connect: Connect) -> None:
    with pytest.raises(ZeroDivisionError) as caught, connect().accelerators("g", timeout=30) as turn:  # noqa: PT012
        coordinator.evict()
        until(lambda: turn.lost)
        _ = 1 / 0
    assert "by hand" in caught.value.__notes__[0]


def test_a_lost_turn_that_was_raised_inside_is_raised_once(coordinator: FakeCoordinator, connect: Connect) -> None:
    with pytest.raises(ts.Evicted) as caught, connect().accelerators("g", timeout=30) as turn:  # noqa: PT012
        coordinator.evict()
        until(lambda: turn.lost)
        turn.check()
    assert not hasattr(caught.value, "__notes__")


def test_a_lost_turn_stands_in_the_queue_until_it_is_noticed(coordinator: FakeCoordinator, connect: Connect) -> None:
    turn = connect().acquire("g", timeout=30)
    coordinator.evict()
    # An owner that hangs on the device is woken up by nothing but another grant.
    until(lambda: [t.token for t in coordinator.queue] == [turn.token + 1])
    with pytest.raises(ts.Evicted):
        turn.check()
    until(lambda: coordinator.queue == [])


def test_a_broken_stream_is_not_seen_by_the_holder(coordinator: FakeCoordinator, connect: Connect) -> None:
    with connect().accelerators("g", timeout=30) as turn:
        for count in range(1, 4):
            coordinator.cut()
            until(partial(_resumed, coordinator, count))
        turn.check()
    assert coordinator.log.count("open") == 1


def test_a_replica_that_leaves_is_replaced_by_another(coordinator: FakeCoordinator, connect: Connect) -> None:
    with connect().accelerators("g", timeout=30) as turn:
        coordinator.go_away()
        until(lambda: coordinator.log.count("resume") == 1)
        turn.check()


def test_a_stream_without_answers_is_ended_and_replaced(coordinator: FakeCoordinator, connect: Connect) -> None:
    client = connect(ttl=3)
    coordinator.faults.confirm_beats = False
    until(lambda: "resume" in coordinator.log)
    coordinator.faults.confirm_beats = True
    # The old stream is gone for the server too, not only forgotten here.
    until(lambda: coordinator.streams == 1)
    client.close()
    until(lambda: coordinator.streams == 0)


def test_a_waiter_goes_on_through_a_broken_stream_and_an_expired_session(
    coordinator: FakeCoordinator, connect: Connect
) -> None:
    coordinator.stranger()
    client = connect()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.acquire, "g", timeout=60)
        until(lambda: len(coordinator.queue) == 2)
        coordinator.cut()
        until(lambda: "resume" in coordinator.log)
        coordinator.expire()
        until(lambda: coordinator.log.count("open") == 2 and len(coordinator.queue) == 2)
        coordinator.stranger_leaves()
        waiting.result(timeout=60).yield_()
    assert coordinator.queue == []


def test_an_expired_session_is_a_lost_turn(coordinator: FakeCoordinator, connect: Connect) -> None:
    turn = connect().acquire("g", timeout=30)
    coordinator.expire()
    until(lambda: turn.lost)
    with pytest.raises(ts.TurnLost, match="session"):
        turn.yield_()


def test_a_yield_survives_a_broken_stream(coordinator: FakeCoordinator, connect: Connect) -> None:
    turn = connect().acquire("g", timeout=30)
    coordinator.faults.answer_yields = False
    with ThreadPoolExecutor(1) as pool:
        yielding = pool.submit(turn.yield_)
        until(lambda: "yield 1" in coordinator.log)
        coordinator.faults.answer_yields = True
        coordinator.cut()
        assert yielding.result(timeout=60) == 0
    assert coordinator.queue == []


def test_threads_of_one_process_take_turns_in_the_order_of_their_calls(
    coordinator: FakeCoordinator, connect: Connect
) -> None:
    client = connect()
    order: list[int] = []

    def work(number: int) -> None:
        with client.accelerators("g", timeout=60) as turn:
            order.append(number)
            assert [t.token for t in coordinator.queue] == [turn.token]

    with ThreadPoolExecutor(4) as pool:
        with client.accelerators("g", timeout=30):
            futures = []
            for number in range(4):
                futures.append(pool.submit(work, number))
                # The queue is in the client: the coordinators know of one ticket alone.
                until(partial(_callers, client, number + 1))
            assert len(coordinator.queue) == 1
        for future in futures:
            future.result(timeout=60)
    assert order == [0, 1, 2, 3]


def test_two_clients_of_one_process_do_not_disturb_each_other(coordinator: FakeCoordinator, connect: Connect) -> None:
    first, second = connect("a"), connect("b")
    with first.accelerators("g", timeout=30):
        assert first.close()
    second.acquire("g", timeout=30).yield_()


def test_a_turn_that_nobody_keeps_is_given_back_with_a_warning(coordinator: FakeCoordinator, connect: Connect) -> None:
    client = connect()
    with pytest.warns(ResourceWarning, match="never given back") as told:  # noqa: PT031
        client.acquire("g", timeout=30)
        gc.collect()
        until(lambda: told.list)  # the thread that has brought it may be the last to let it go
    until(lambda: coordinator.queue == [])


def test_close_gives_back_everything_and_ends_the_wait_of_others(
    coordinator: FakeCoordinator, connect: Connect
) -> None:
    client = connect()
    turn = client.acquire("g", timeout=30)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.acquire, "g", timeout=60)
        until(partial(_callers, client, 1))
        assert client.close()
        with pytest.raises(ts.ClientClosed):
            waiting.result(timeout=60)
    assert (coordinator.queue, coordinator.sessions) == ([], {})
    with pytest.raises(ts.ClientClosed):
        turn.check()
    with pytest.raises(ts.ClientClosed):
        client.acquire("g", timeout=30)
    assert client.closed


def test_connecting_to_nobody_says_so_in_time() -> None:
    with pytest.raises(ts.Unavailable, match=r"127\.0\.0\.1:1 "):
        ts.connect("127.0.0.1:1", job="a", connect_timeout=0.5)


def test_the_first_acquires_time_is_the_openings_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMESLICE_ENDPOINTS", "127.0.0.1:1")
    monkeypatch.setenv("TIMESLICE_JOB_ID", "a")
    opening = threading.Event()

    def first() -> None:
        opening.set()
        ts.acquire("g", timeout=5)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first)
        opening.wait(timeout=60)
        until(default._lock.locked)
        with pytest.raises(ts.Unavailable, match="Another thread"):
            ts.acquire("g", timeout=0)
        with pytest.raises(ts.Unavailable, match=r"a session in (4\.\d+|5) s"):
            waiting.result(timeout=60)
    with pytest.raises(ts.Unavailable, match=r"a session in \S+ s"), ts.accelerators("g", timeout=0.5):
        pass


def test_what_the_opening_took_is_of_the_acquires_time(coordinator: FakeCoordinator, connect: Connect) -> None:
    client = connect()
    held = client.acquire("g", timeout=30)
    began = time.monotonic() - 30
    with pytest.raises(ts.AcquireTimeout, match=r"within 30\.5 s"):
        client.acquire_since(began, ("g",), {"job": "b", "timeout": 30.5})
    assert time.monotonic() - began < 50
    held.yield_()


def test_an_acquire_for_no_job_is_refused(coordinator: FakeCoordinator, connect: Connect) -> None:
    with pytest.raises(ts.BadRequest, match="TIMESLICE_JOB_ID"):
        connect(job="").acquire("g")


def test_the_module_level_functions_use_the_environment(
    coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMESLICE_ENDPOINTS", ",".join(coordinator.endpoints))
    monkeypatch.setenv("TIMESLICE_JOB_ID", "from-the-environment")
    with ts.accelerators("g", timeout=30) as turn:
        assert turn.job == "from-the-environment"
    ts.acquire("g", timeout=30).yield_()
    assert coordinator.log.count("open") == 1
    assert ts.close()
    assert ts.close()  # nothing is open
    assert coordinator.sessions == {}


def test_a_fault_in_the_client_reaches_those_who_wait(
    coordinator: FakeCoordinator, connect_in_process: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect_in_process()

    def broken(*_: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr("tsclient.session.Session.acquire", broken)
    with pytest.raises(ts.TimesliceError, match="a mistake"):
        client.acquire("g", timeout=30)
