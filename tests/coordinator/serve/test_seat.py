# SPDX-License-Identifier: Apache-2.0
"""What a client is told of one acquire: tables of pictures and events. No input or output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from coordinator.apply.engine import Engine
from coordinator.picture import Picture
from coordinator.serve.bell import ROUND, Bell
from coordinator.serve.party import Party
from coordinator.serve.seat import Event, Seat, Stage
from ledger.codec import encode
from ledger.etcd import KeyValue
from ledger.keys import Keys
from ledger.records import (
    Ended,
    GroupSpec,
    Holder,
    Incoming,
    NodeDevices,
    Phase,
    Process,
    Resident,
    ResidentKind,
    Ticket,
    TicketState,
    Turn,
)
from ledger.view import Change, Changes

KEYS = Keys()
SPEC = GroupSpec(nodes=(NodeDevices("n0", ("d0",)), NodeDevices("n1", ("d1",))))
IDLE = Turn(resident=Resident(ResidentKind.NOBODY), nodes=("n0", "n1"))
WAITING = Ticket(session="s", sequence=1)
GRANTED = Ticket(session="s", sequence=1, state=TicketState.GRANTED, token=50, restored=True)


class Ledger:
    """A picture that is told of puts and deletions, each at the next revision."""

    def __init__(self) -> None:
        self.picture = Picture(KEYS)
        self._created: dict[bytes, int] = {}
        self.put(KEYS.spec("g"), SPEC)
        self.put(KEYS.turn("g"), IDLE)

    def put(self, key: bytes, record: Any) -> int:
        revision = self.picture.revision + 1
        create = self._created.setdefault(key, revision)
        self._take(Change(key, KeyValue(key, encode(record), create, revision, 1, 0)))
        return revision

    def ticket(self, record: Ticket, job: str = "a") -> int:
        return self.put(KEYS.ticket("g", job), record)

    def turn(self, record: Turn) -> int:
        return self.put(KEYS.turn("g"), record)

    def drop(self, job: str = "a") -> None:
        self._created.pop(KEYS.ticket("g", job))
        self._take(Change(KEYS.ticket("g", job), None))

    def _take(self, change: Change) -> None:
        self.picture.take(Changes(self.picture.revision + 1, (change,)))


def seated(ledger: Ledger) -> Seat:
    seat = Seat("s", 1, "a", "g", since=0.0)
    seat.seated(ledger.ticket(WAITING))
    return seat


def kind(event: Event | None) -> str | None:
    return event.WhichOneof("event") if event is not None else None


def test_nothing_is_said_on_a_picture_older_than_the_ticket() -> None:
    ledger = Ledger()
    seat = Seat("s", 1, "a", "g", since=0.0)
    assert seat.look(ledger.picture, 0.0) is None  # not asked yet
    seat.seated(ledger.picture.revision + 1)
    assert seat.look(ledger.picture, 0.0) is None  # the watch has yet to show what was written
    ledger.ticket(WAITING)
    assert kind(seat.look(ledger.picture, 0.0)) == "queued"


def test_a_position_is_told_when_it_changes_and_at_most_once_a_second() -> None:
    ledger = Ledger()
    ledger.ticket(Ticket(session="x", sequence=9), "first")
    seat = seated(ledger)
    told = seat.look(ledger.picture, 10.0)
    assert told is not None and told.queued.position == 2
    assert seat.look(ledger.picture, 99.0) is None  # nothing new
    ledger.drop("first")
    assert seat.look(ledger.picture, 10.9) is None
    assert seat.due_in(10.9) == pytest.approx(0.1)
    told = seat.look(ledger.picture, 11.0)
    assert told is not None and told.queued.position == 1
    assert seat.due_in(11.0) is None  # nobody has to look again for it


@pytest.mark.parametrize("priority", [0, 5])
def test_the_holder_does_not_count_among_those_ahead(priority: int) -> None:
    ledger = Ledger()
    ledger.ticket(Ticket(session="x", sequence=9, state=TicketState.GRANTED, token=3), "holder")
    ledger.turn(Turn(phase=Phase.HELD, token=3, holder=Holder("holder", "x"), nodes=("n0",)))
    seat = Seat("s", 1, "a", "g", since=0.0)
    seat.seated(ledger.ticket(Ticket(session="s", sequence=1, priority=priority)))
    told = seat.look(ledger.picture, 0.0)
    assert told is not None and told.queued.position == 1


def test_only_the_one_that_is_brought_on_hears_of_the_switch() -> None:
    ledger = Ledger()
    seat = seated(ledger)
    other = Seat("x", 9, "b", "g", since=0.0)
    other.seated(ledger.ticket(Ticket(session="x", sequence=9), "b"))
    switching = Turn(phase=Phase.PREPARING, epoch=4, incoming=Incoming("a", seat.revision), nodes=("n0", "n1"))
    ledger.turn(switching)
    told = seat.look(ledger.picture, 0.0)
    assert told is not None and (told.switching.epoch, told.switching.nodes, told.switching.answered) == (4, 2, 0)
    assert kind(other.look(ledger.picture, 0.0)) == "queued"
    ledger.turn(Turn(phase=Phase.COMMITTING, epoch=4, incoming=Incoming("a", seat.revision), nodes=("n0", "n1")))
    assert kind(seat.look(ledger.picture, 0.01)) == "switching"  # a phase is told at once


def test_a_grant_is_told_once_with_what_came_with_it() -> None:
    ledger = Ledger()
    seat = seated(ledger)
    ledger.ticket(replace(GRANTED, lost=(Process("boot", 4, 5),)))
    event = seat.look(ledger.picture, 2.5)
    assert event is not None
    (grant,) = event.granted.grants
    assert (grant.group, grant.token, grant.restored, grant.lost[0].pid) == ("g", 50, True, 4)
    assert event.granted.waited_ms == 2_500
    assert seat.look(ledger.picture, 3.0) is None
    seat.tell_again()
    assert kind(seat.look(ledger.picture, 4.0)) == "granted"


def held(ledger: Ledger) -> Seat:
    seat = seated(ledger)
    ledger.ticket(GRANTED)
    ledger.turn(Turn(phase=Phase.HELD, token=50, holder=Holder("a", "s"), nodes=("n0",)))
    assert kind(seat.look(ledger.picture, 0.0)) == "granted"
    return seat


LOST = Turn(token=50, resident=Resident(ResidentKind.JOB, "a", Ended.LOST))


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        (LOST, "EVICTED"),
        (Turn(phase=Phase.PREPARING, token=50, resident=LOST.resident), "EVICTED"),  # the next switch has begun
        (Turn(token=50, resident=Resident(ResidentKind.UNKNOWN, "a")), "TURN_LOST"),
        (Turn(token=51, resident=LOST.resident), "TURN_LOST"),  # another turn since
        (Turn(token=50, yielded_token=50, resident=Resident(ResidentKind.JOB, "a")), None),
    ],
)
def test_a_held_turn_whose_ticket_is_gone(turn: Turn, told: str | None) -> None:
    ledger = Ledger()
    seat = held(ledger)
    ledger.turn(turn)
    ledger.drop()
    event = seat.look(ledger.picture, 1.0)
    assert (event.lost.reason if event is not None else None) == told
    assert seat.stage is Stage.OVER


def test_a_held_turn_whose_token_has_changed_is_lost() -> None:
    ledger = Ledger()
    seat = held(ledger)
    ledger.ticket(replace(GRANTED, token=60))
    event = seat.look(ledger.picture, 1.0)
    assert event is not None and (event.lost.token, event.lost.reason) == (50, "TURN_LOST")


def test_what_is_being_given_back_is_not_lost() -> None:
    ledger = Ledger()
    seat = held(ledger)
    seat.leaving = True
    ledger.turn(Turn(token=70, yielded_token=70))  # the next one has come and gone already
    ledger.drop()
    assert seat.look(ledger.picture, 1.0) is None


def test_a_grant_that_is_lost_before_it_could_be_told_is_told_first() -> None:
    ledger = Ledger()
    party = Party("s", 1, "a", ("g",), since=0.0)
    party.seated(ledger.ticket(GRANTED))
    party.granted("g", GRANTED.token)
    ledger.drop()
    assert [kind(event) for event in party.look(ledger.picture, 1.0)] == ["granted", "lost"]


def test_a_place_that_is_gone_was_taken_away() -> None:
    ledger = Ledger()
    seat = seated(ledger)
    ledger.drop()
    ledger.ticket(Ticket(session="s", sequence=2))  # a later acquire of the same job
    event = seat.look(ledger.picture, 1.0)
    assert event is not None and event.refused.reason == "EVICTED"


def test_a_refusal_carries_its_reason_and_status() -> None:
    ledger = Ledger()
    seat = seated(ledger)
    ledger.ticket(replace(WAITING, state=TicketState.REFUSED, reason="JOB_QUARANTINED", why="W."))
    event = seat.look(ledger.picture, 1.0)
    assert event is not None
    assert (event.refused.reason, event.refused.code, event.refused.message) == ("JOB_QUARANTINED", 9, "W.")
    assert dict(event.refused.metadata) == {"group": "g", "job": "a"}


class FakeEngine:
    """Only what a bell needs: somebody who tells of changes."""

    def __init__(self) -> None:
        self.change: Callable[[frozenset[str]], None] = lambda _groups: None

    def subscribe(self, callback: Callable[[frozenset[str]], None]) -> Callable[[], None]:
        self.change = callback
        return lambda: None


class Listeners:
    """Of a bell: how often each was rung, in the order of the rings."""

    def __init__(self, bell: Bell) -> None:
        self._bell, self.rung = bell, list[str]()
        self._more = asyncio.Event()

    def listen(self, group: str, name: str) -> Callable[[], None]:
        def ring() -> None:
            self.rung.append(name)
            self._more.set()

        return self._bell.listen(group, ring)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.rung) < count:
                self._more.clear()
                await self._more.wait()


async def test_rule_36_the_bell_rings_once_for_many_changes() -> None:
    engine = FakeEngine()
    bell = Bell(cast(Engine, engine), every=0.2, period=0.01)
    listeners = Listeners(bell)
    end = listeners.listen("g", "a")
    for _ in range(1_000):
        engine.change(frozenset({"g", "other"}))
    assert not listeners.rung  # no part of what makes a change
    await listeners.until(1)
    began = asyncio.get_running_loop().time()
    for _ in range(1_000):
        engine.change(frozenset({"g"}))
    await listeners.until(2)
    assert asyncio.get_running_loop().time() - began > 0.1
    engine.change(frozenset({"g"}))
    end()
    listeners.listen("h", "b")
    engine.change(frozenset({"g", "h"}))
    await listeners.until(3)
    assert listeners.rung == ["a", "a", "b"]
    bell.close()


async def test_rule_36_a_crowd_is_told_in_rounds_and_holds_up_no_other_group() -> None:
    engine = FakeEngine()
    bell = Bell(cast(Engine, engine), every=30.0, period=0.01)
    listeners = Listeners(bell)
    crowd = [f"c{number}" for number in range(10 * ROUND)]
    for name in crowd:
        listeners.listen("g", name)
    listeners.listen("h", "other")
    engine.change(frozenset({"g"}))
    await listeners.until(1)
    assert listeners.rung == crowd[:ROUND]
    engine.change(frozenset({"g", "h"}))
    await listeners.until(1 + len(crowd))
    assert listeners.rung.index("other") < 2 * ROUND  # in the very next round
    assert [name for name in listeners.rung if name != "other"] == crowd  # each in its turn, none twice
    bell.close()


async def test_a_listener_may_begin_anew_while_it_is_rung() -> None:
    engine = FakeEngine()
    bell = Bell(cast(Engine, engine))
    rung: list[str] = []

    def begin_anew() -> None:
        rung.append("first")
        end()
        bell.listen("g", lambda: rung.append("second"))

    end = bell.listen("g", begin_anew)
    for _ in range(2):
        engine.change(frozenset({"g"}))
        bell._ring()
    assert rung == ["first", "second"]
    bell.close()
