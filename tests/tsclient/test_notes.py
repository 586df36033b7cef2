# SPDX-License-Identifier: Apache-2.0
"""What a helper has noted is there after its death, whenever that comes."""

from __future__ import annotations

import pytest

from tsclient.helper.notes import PLACES, ROOM, Notes, memory


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
