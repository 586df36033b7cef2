# SPDX-License-Identifier: Apache-2.0
"""What a helper has noted is there after its death, whenever that comes."""

from __future__ import annotations

import os
import socket
from typing import cast

import pytest

from tsclient.deadlines import memory as deadlines_memory
from tsclient.helper.main import Helper, _Client
from tsclient.helper.notes import PLACES, ROOM, Notes, memory
from tsclient.helper.parent import Parent
from tsclient.helper.wire import pack
from tsclient.runner import Runner
from tsclient.settings import Settings


@pytest.fixture
def descriptor() -> int:
    return memory()


def test_a_note_is_read_by_whoever_has_the_memory(descriptor: int) -> None:
    last = PLACES - 1
    assert Notes(descriptor).write(last, 1, b"x" * ROOM)
    assert Notes(descriptor).read(last) == [(1, b"x" * ROOM)]
    assert all(Notes(descriptor).read(place) == [] for place in range(last))


def test_a_note_leaves_the_one_before_it_alone(descriptor: int) -> None:
    notes = Notes(descriptor)
    for stamp in (1, 2, 3):
        assert notes.write(0, stamp, b"%d" % stamp)
    assert sorted(notes.read(0)) == [(2, b"2"), (3, b"3")]


def test_who_is_killed_while_writing_a_note_leaves_the_one_before_it(descriptor: int) -> None:
    class Killed(BaseException):
        pass

    class Deadly(bytes):
        """Its length is the last thing that is asked of it before it is copied."""

        asked = 0

        def __len__(self) -> int:
            self.asked += 1
            if self.asked > 1:
                raise Killed
            return 5

    notes = Notes(descriptor)
    notes.write(0, 1, b"whole")
    notes.write(0, 2, b"older")
    with pytest.raises(Killed):
        notes.write(0, 3, Deadly(b"fresh"))
    assert notes.read(0) == [(2, b"older")]


def test_a_note_that_is_too_long_is_not_written(descriptor: int) -> None:
    notes = Notes(descriptor)
    assert notes.write(0, 1, b"short")
    assert not notes.write(0, 2, b"x" * (ROOM + 1))
    assert notes.read(0) == [(1, b"short")]


class Ending:
    """A runner that has been told to stop, and still has something to note."""

    def stop(self) -> None:
        pass

    def changed(self) -> set[int]:
        return {1}

    def head(self) -> tuple[str, str, float]:
        return "s", "secret", 10.0

    def last(self) -> tuple[int, int]:
        return 1, 1

    def entry(self, key: int) -> None:
        """It has gone."""


class Caller:
    """The process that this one stands in for."""

    pid = os.getpid()


async def test_who_has_left_writes_no_more_over_the_notes_of_whoever_has_its_place_now(descriptor: int) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    notes = Notes(descriptor)
    with ours, theirs:
        helper = Helper(ours, deadlines_memory(), notes, cast(Parent, Caller()))
        left = _Client(1, Settings(("127.0.0.1:1",), "a"), None, 0, stamp=6, runner=cast(Runner, Ending()))
        helper._clients[1] = left
        helper._take(pack(["leave", 1]))
        notes.write(0, 1, b"another's")
        helper._tell(left, [])
    assert notes.read(0) == [(1, b"another's")]
