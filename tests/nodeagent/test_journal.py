# SPDX-License-Identifier: Apache-2.0
"""What the journal keeps, and what it does when it cannot."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledger.records import Process
from nodeagent import journal as module
from nodeagent.errors import JournalCorrupt, JournalUnwritable
from nodeagent.journal import CommitBegun, GroupJournal, Journal, JournalState, Parked
from nodeagent.picture import Seen
from nodeagent.store import NodeStore
from nodeagent.switch import Switch
from nodeagent.worker import Surroundings, Worker

ONE = Process("boot", 1, 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "journal"


def fill(path: Path) -> JournalState:
    journal = Journal(path)
    journal.set_lease(77)
    journal.update("g", highest=3, reserved=5, locked=(ONE,))
    journal.update("g", begun=CommitBegun(3, "a"))
    journal.update("h", highest=9)
    journal.set_parked("x", Parked((ONE,), ("D",)))
    journal.set_parked("y", Parked((ONE,), ("D",)))
    journal.set_parked("y", Parked())
    journal.close()
    return journal.state


def test_all_of_it_is_there_after_a_restart(path: Path) -> None:
    state = fill(path)
    again = Journal(path)
    assert again.state == state
    assert again.state.group("g") == GroupJournal(3, CommitBegun(3, "a"), 5, (ONE,))
    assert again.state.reserved_by_others("h") == 5
    assert list(again.state.parked) == ["x"]
    again.close()


def test_the_highest_epoch_never_falls(path: Path) -> None:
    journal = Journal(path)
    journal.update("g", highest=5)
    journal.update("g", highest=4)
    assert journal.state.group("g").highest == 5
    journal.close()


def test_what_is_noted_is_on_the_disk_with_the_next_entry_of_any_group(path: Path) -> None:
    journal = Journal(path)
    journal.note("g", highest=3, reserved=5)
    journal.note("h", highest=9)
    assert journal.state.reserved_by_others("h") == 5, "it counts at once"
    assert b'"group"' not in path.read_bytes(), "and a crash forgets it"
    journal.update("h")
    size = path.stat().st_size
    journal.update("h", highest=9)
    journal.flush()
    assert path.stat().st_size == size, "nothing is owed any more"
    journal.note("g", reserved=0)
    journal.flush()
    journal.close()
    again = Journal(path).state
    assert (again.group("g"), again.group("h").highest) == (GroupJournal(highest=3), 9)


def test_what_was_noted_stays_owed_while_the_disk_is_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    journal = Journal(path)
    journal.note("g", highest=3)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        with pytest.raises(JournalUnwritable):
            journal.flush()
    journal.update("h", highest=1)
    journal.close()
    assert Journal(path).state.group("g").highest == 3


def test_a_torn_last_entry_was_promised_to_nobody(path: Path) -> None:
    state = fill(path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'0123abcd {"group"')
    again = Journal(path)
    assert again.state == state
    again.update("g", highest=4)
    again.close()
    assert Journal(path).state.group("g").highest == 4


@pytest.mark.parametrize(("old", "new", "line"), [(b'"lease":77', b'"lease":78', 2), (b"", b"\n", 1)])
def test_other_damage_is_an_error(path: Path, old: bytes, new: bytes, line: int) -> None:
    fill(path)
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    with pytest.raises(JournalCorrupt, match=f"line {line}"):
        Journal(path)


def test_an_entry_that_says_nonsense_is_an_error(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(module._line({"group": "g", "highest": 1}))
    with pytest.raises(JournalCorrupt, match="line 1"):
        Journal(path)


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_a_full_disk_changes_nothing_and_says_so(path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    journal = Journal(path)
    journal.update("g", highest=1)
    real = os.write

    def full(fd: int, data: bytes = b"") -> int:
        if call == "write":
            real(fd, data[: len(data) // 2])  # half of it arrives
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(JournalUnwritable, match="No space left"):
            journal.update("g", highest=2)
    assert journal.state.group("g").highest == 1
    journal.update("g", reserved=6)
    journal.close()
    assert Journal(path).state.group("g") == GroupJournal(highest=1, reserved=6)


def test_it_stays_small(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_COMPACT_ABOVE", 4096)
    journal = Journal(path)
    for epoch in range(1, 500):
        journal.update("g", highest=epoch)
        assert path.stat().st_size < 4096 + 512
    journal.close()
    assert Journal(path).state.group("g").highest == 499


async def test_what_was_noted_of_a_group_that_is_gone_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.update("g", reserved=5)
    journal.note("g", reserved=0)  # as a COMMIT that has been answered
    gone = Seen(None, None, None, (), {}, frozenset())
    around = SimpleNamespace(picture=SimpleNamespace(seen=lambda group: gone))
    worker = Worker(
        "g", cast(Switch, None), journal, cast(NodeStore, None), cast(Surroundings, around), cast(Any, None)
    )
    await asyncio.wait_for(worker.run(), 10)
    journal.close()
    assert Journal(tmp_path / "journal").state.group("g").reserved == 0
