# SPDX-License-Identifier: Apache-2.0
"""What an agent must know after a crash: a small file, written before the thing itself is done.

One entry a line, each with a checksum: ``<crc32> <JSON>``. An entry counts once it is on the disk: its bytes and the
file's length (fdatasync), without waiting for whatever else the file system has in hand. A last line without its end is
a write that a crash cut short: nobody was told that it was done, so it is dropped. Any other damage is
`JournalCorrupt`. When the file has grown it is replaced by one line that says it all.

What is only noted counts in this life at once, and is on the disk with the next entry: for what nobody may rely upon
before that entry is there, so that a phase of a switch waits for the disk once.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from ledger.records import Process
from nodeagent.errors import JournalCorrupt, JournalUnwritable

_COMPACT_ABOVE = 256 << 10


class CommitBegun(Struct, frozen=True):
    """A COMMIT whose first irreversible step may have been taken."""

    epoch: int
    on: str


class GroupJournal(Struct, frozen=True):
    """What is known of one group.

    Attributes:
        highest: the highest epoch seen.
        begun: the COMMIT that is to be finished, if any.
        reserved: host memory put by for the switch in hand, bytes.
        locked: what PREPARE is locking, or has locked; nothing any more once a COMMIT has begun.
    """

    highest: int = 0
    begun: CommitBegun | None = None
    reserved: int = 0
    locked: tuple[Process, ...] = ()


class Parked(Struct, frozen=True):
    """A job that was checkpointed by hand: its processes, and the devices that it had."""

    processes: tuple[Process, ...] = ()
    devices: tuple[str, ...] = ()


class JournalState(Struct, frozen=True):
    """All that is in the journal.

    Attributes:
        lease: of this node's registration; 0: none known.
        groups: by name.
        parked: by job: what the NodeAgent service has checkpointed, without a coordinator.
    """

    lease: int = 0
    groups: Mapping[str, GroupJournal] = field(default_factory=lambda: MappingProxyType({}))
    parked: Mapping[str, Parked] = field(default_factory=lambda: MappingProxyType({}))

    def group(self, name: str) -> GroupJournal:
        return self.groups.get(name, GroupJournal())

    def reserved_by_others(self, name: str) -> int:
        return sum(one.reserved for group, one in self.groups.items() if group != name)


class Journal:
    """The open journal. Not for use by two processes at once: the devices' OS locks see to that.

    Raises:
        JournalCorrupt: on opening.
        JournalUnwritable: on opening and by every change; the state is then as before.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._fd = path, -1
        self._noted: set[str] = set()
        self.state = JournalState()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._size = self._load()
            self._compact()
        except OSError as error:
            raise JournalUnwritable(str(path), error) from error

    def set_lease(self, lease: int) -> None:
        self._append(replace(self.state, lease=lease), [{"lease": lease}])

    def set_parked(self, job: str, parked: Parked) -> None:
        """Note what is checkpointed by hand; empty: nothing of the job is any more."""
        jobs = {**self.state.parked, job: parked}
        if not parked.processes:
            del jobs[job]
        state = replace(self.state, parked=MappingProxyType(jobs))
        self._append(state, [_parked_entry(job, parked)])

    def update(self, name: str, **changes: Any) -> None:
        """Change what is known of a group: the fields of `GroupJournal`, by name. No change, no write.

        The highest epoch never falls.
        """
        state = self._changed(name, changes)
        if state is not self.state or name in self._noted:
            self._append(state, self._entries(state, self._noted | {name}))
            self._noted.clear()

    def note(self, name: str, **changes: Any) -> None:
        """As `update`, but a crash forgets it until the next `update` or `flush`."""
        state = self._changed(name, changes)
        if state is not self.state:
            self._noted.add(name)
            self.state = state

    def flush(self) -> None:
        """Write what was noted."""
        if self._noted:
            self._append(self.state, self._entries(self.state, self._noted))
            self._noted.clear()

    def _changed(self, name: str, changes: dict[str, Any]) -> JournalState:
        """The state with these changes; the very same where nothing is changed by them."""
        state = self.state
        old = state.group(name)
        if changes.get("highest", 0) < old.highest:
            changes = {**changes, "highest": old.highest}
        # A phase of a switch comes here again and again, as a rule with what is known already.
        if all(getattr(old, field) == value for field, value in changes.items()):
            return state
        new = replace(old, **changes)
        return JournalState(state.lease, MappingProxyType({**state.groups, name: new}), state.parked)

    @staticmethod
    def _entries(state: JournalState, names: Iterable[str]) -> list[dict[str, Any]]:
        return [{"group": name, **_to_json(state.group(name))} for name in sorted(names)]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _append(self, state: JournalState, entries: Iterable[dict[str, Any]]) -> None:
        try:
            if self._size > _COMPACT_ABOVE:
                self._compact()
            lines = b"".join(map(_line, entries))
            try:
                _write_all(self._fd, lines)
                os.fdatasync(self._fd)
            except OSError:
                # Part of it may be there, and a later entry must not follow a broken line.
                os.ftruncate(self._fd, self._size)
                raise
            self._size += len(lines)
        except OSError as error:
            raise JournalUnwritable(str(self._path), error) from error
        self.state = state

    def _load(self) -> int:
        """Read what is there; the number of bytes that count."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        lines = content.split(b"\n")
        for number, line in enumerate(lines[:-1], 1):
            self._apply(number, line)
        return len(content) - len(lines[-1])

    def _apply(self, number: int, line: bytes) -> None:
        checksum, _, body = line.partition(b" ")
        if checksum != b"%08x" % zlib.crc32(body):
            raise JournalCorrupt(str(self._path), number, "its checksum is wrong")
        try:
            entry = json.loads(body)
            if "lease" in entry:
                self.state = replace(self.state, lease=int(entry["lease"]))
            if "group" in entry:
                groups = {**self.state.groups, entry["group"]: _from_json(entry)}
                self.state = replace(self.state, groups=MappingProxyType(groups))
            if "parked" in entry:
                jobs = {**self.state.parked, entry["parked"]: _parked(entry)}
                jobs = {job: one for job, one in jobs.items() if one.processes}
                self.state = replace(self.state, parked=MappingProxyType(jobs))
        except (KeyError, TypeError, ValueError) as error:
            raise JournalCorrupt(str(self._path), number, f"it cannot be read ({error!r})") from error

    def _compact(self) -> None:
        """Write the state anew and put it in the place of the old file, at once or not at all."""
        entries: list[dict[str, Any]] = [{"lease": self.state.lease}]
        entries += [{"group": name, **_to_json(one)} for name, one in self.state.groups.items()]
        entries += [_parked_entry(job, one) for job, one in self.state.parked.items()]
        fresh = self._path.with_name(self._path.name + ".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            content = b"".join(map(_line, entries))
            _write_all(fd, content)
            os.fsync(fd)
            fresh.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError:
            os.close(fd)
            raise
        self.close()
        self._fd, self._size = fd, len(content)


def _line(entry: dict[str, Any]) -> bytes:
    body = msgspec.json.encode(entry)
    return b"%08x %b\n" % (zlib.crc32(body), body)


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _to_json(group: GroupJournal) -> dict[str, Any]:
    begun = group.begun
    return {
        "highest": group.highest,
        "begun": None if begun is None else {"epoch": begun.epoch, "on": begun.on},
        "reserved": group.reserved,
        "locked": [asdict(one) for one in group.locked],
    }


def _parked_entry(job: str, parked: Parked) -> dict[str, Any]:
    return {"parked": job, "processes": [asdict(one) for one in parked.processes], "devices": parked.devices}


def _parked(entry: dict[str, Any]) -> Parked:
    return Parked(tuple(Process(**one) for one in entry["processes"]), tuple(entry["devices"]))


def _from_json(entry: dict[str, Any]) -> GroupJournal:
    begun = entry["begun"]
    return GroupJournal(
        highest=int(entry["highest"]),
        begun=None if begun is None else CommitBegun(int(begun["epoch"]), str(begun["on"])),
        reserved=int(entry["reserved"]),
        locked=tuple(Process(**one) for one in entry["locked"]),
    )
