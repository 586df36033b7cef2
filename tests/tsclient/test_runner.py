# SPDX-License-Identifier: Apache-2.0
"""Where the deadlines of turns go: what a holder reads is never more than what the session believes."""

from __future__ import annotations

import random

import pytest

from timeslice_proto.v1 import coordinator_pb2 as pb
from timeslice_proto.v1 import records_pb2
from tsclient import deadlines, news, runner
from tsclient.deadlines import OVER
from tsclient.orders import Acquire, GiveBack, Noticed
from tsclient.settings import Settings
from tsclient.want import Want


class NoTransport:
    """Takes everything and does nothing."""

    def __init__(self, *_: object) -> None:
        self.sent: list[pb.SessionRequest] = []

    def send(self, request: pb.SessionRequest) -> None:
        self.sent.append(request)

    def arm(self, at: float) -> None: ...
    def worked(self) -> None: ...
    def hang_up(self, why: str) -> None: ...
    def stop(self) -> None: ...


class Driven:
    """A runner whose session is open, proved until `proof`, and holds what it is told to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.killed = 0
        self.told: list[news.News] = []
        self.cells = deadlines.local().cells
        self.runner = runner.Runner(
            Settings(("h:1",), ttl=10.0),
            records_pb2.Process(boot_id="b", pid=1, start_time=1),
            self.cells,
            self.told.extend,
            random.Random(1),
            kill=self._kill,
        )
        self.runner.connected()
        self._event(opened=pb.Opened(session="s", secret="secret", ttl_ms=10_000))
        self.beats = 1
        self.confirm()

    def _kill(self) -> None:
        self.killed += 1

    def _event(self, **event: object) -> None:
        self.runner.event(pb.SessionEvent(**event))  # type: ignore[arg-type]

    @property
    def proof(self) -> float:
        return self.runner._session.proof

    def confirm(self) -> None:
        self._event(beat=pb.BeatConfirmed(number=self.beats, ttl_ms=10_000))

    def beat(self, seconds: float) -> None:
        """After so many seconds a beat is sent and confirmed."""
        self.now += seconds
        self.runner.tick()
        self.beats += 1
        self.confirm()

    def hold(self, key: int, group: str, *, kill: bool = False) -> None:
        self.runner.order(Acquire(key, key, Want("a", (group,)), kill))
        grant = pb.GroupGrant(group=group, token=10 + key)
        self._event(granted=pb.Granted(sequence=self.runner._session._last_sequence, grants=[grant]))

    def lose(self, sequence: int, group: str) -> None:
        self._event(lost=pb.Lost(sequence=sequence, group=group, reason="EVICTED"))


@pytest.fixture
def d(monkeypatch: pytest.MonkeyPatch) -> Driven:
    monkeypatch.setattr(runner, "Transport", NoTransport)
    monkeypatch.setattr(runner, "boottime", lambda: driven.now if driven else 100.0)
    driven: Driven | None = None
    driven = Driven()
    return driven


def test_a_turn_has_its_deadline_before_its_owner_is_told(d: Driven) -> None:
    d.hold(1, "g")
    assert d.cells[1] == d.proof > d.now
    assert isinstance(d.told[-1], news.Granted)


def test_deadlines_move_with_each_confirmed_beat(d: Driven) -> None:
    d.hold(1, "g")
    before = d.proof
    d.beat(4.0)
    assert d.cells[1] == d.proof == before + 4.0


def test_a_turn_that_was_lost_stays_so_whatever_is_confirmed_later(d: Driven) -> None:
    d.hold(1, "g")
    d.hold(2, "h")
    d.lose(1, "g")
    assert (d.cells[1], d.cells[2]) == (OVER, d.proof)
    d.beat(4.0)
    assert (d.cells[1], d.cells[2]) == (OVER, d.proof)


def test_past_the_deadline_all_are_over_though_the_session_goes_on(d: Driven) -> None:
    d.hold(1, "g")
    d.now = d.proof
    d.runner.tick()
    assert d.cells[1] == OVER
    d.beat(4.0)
    assert d.cells[1] == OVER
    assert d.proof > d.now


def test_a_turn_that_is_given_back_leaves_its_slot_alone(d: Driven) -> None:
    d.hold(1, "g")
    d.runner.order(GiveBack(1))
    d._event(yielded=pb.Yielded(sequence=1, group="g"))
    d.cells[1] = 5.0  # somebody else's by now
    d.beat(4.0)
    assert d.cells[1] == 5.0


def test_only_a_turn_that_is_to_kill_does(d: Driven) -> None:
    d.hold(1, "g")
    d.hold(2, "h", kill=True)
    d.lose(1, "g")
    assert d.killed == 0
    d.lose(2, "h")
    assert d.killed == 1


def test_a_loss_that_its_owner_saw_first_ends_the_turn_here_too(d: Driven) -> None:
    d.hold(1, "g")
    d.runner.order(Noticed(1))  # by the deadline, on its own clock
    d._event(cancelled=pb.Cancelled(sequence=1))
    assert d.told[-1] == news.Withdrawn(1)
    assert d.runner._session._entries == {}


def test_a_fault_ends_all_turns_and_is_told(d: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    d.hold(1, "g")
    monkeypatch.delattr("tsclient.session.Session.acquire")
    d.runner.order(Acquire(2, 2, Want("a", ("h",))))
    assert d.cells[1] == OVER
    assert isinstance(d.told[-1], news.Ended)
