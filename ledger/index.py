# SPDX-License-Identifier: Apache-2.0
"""The ledger's content as typed records, kept current key by key. No input or output.

A value that cannot be read is kept out and remembered as an error of its group or node: it blocks that one, and is
never overwritten.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeVar

from ledger import records
from ledger.codec import decode
from ledger.errors import LedgerError
from ledger.etcd import KeyValue
from ledger.kept import Kept
from ledger.keys import Keys, Kind, Place
from ledger.queue import Queue

R = TypeVar("R")

_EMPTY = Queue()


class Index:
    """All records under the prefix.

    Attributes map names to records: ``specs`` and ``turns`` by group; ``jobs`` by group, then job; ``agents`` and
    ``drains`` by node; ``directives``, ``acks`` and ``processes`` by node, then group; ``claims`` by node, then device;
    ``registered`` by node, then (group, job).
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.specs: dict[str, Kept[records.GroupSpec]] = {}
        self.turns: dict[str, Kept[records.Turn]] = {}
        self.jobs: defaultdict[str, dict[str, Kept[records.Job]]] = defaultdict(dict)
        self.sessions: dict[str, Kept[records.Session]] = {}
        self.replicas: dict[str, Kept[records.Replica]] = {}
        self.compaction: Kept[records.Compaction] | None = None
        self.agents: dict[str, Kept[records.Agent]] = {}
        self.drains: dict[str, Kept[records.Drain]] = {}
        self.directives: defaultdict[str, dict[str, Kept[records.Directive]]] = defaultdict(dict)
        self.acks: defaultdict[str, dict[str, Kept[records.Ack]]] = defaultdict(dict)
        self.processes: defaultdict[str, dict[str, Kept[records.Processes]]] = defaultdict(dict)
        self.claims: defaultdict[str, dict[str, Kept[records.Claim]]] = defaultdict(dict)
        self.registered: defaultdict[str, dict[tuple[str, str], Kept[records.Registered]]] = defaultdict(dict)
        self._queues: dict[str, Queue] = {}
        self._errors: dict[bytes, tuple[Place, LedgerError]] = {}

    def queue(self, group: str) -> Queue:
        """The tickets of a group, as they are now."""
        return self._queues.get(group, _EMPTY)

    @property
    def sound(self) -> bool:
        """Every record can be read."""
        return not self._errors

    def errors(self, *, group: str = "", node: str = "") -> list[tuple[Place, LedgerError]]:
        """The records of a group, or of a node itself, that cannot be read, and what each was to be.

        Without a name: all of them.
        """
        return [
            (place, error)
            for place, error in self._errors.values()
            if (not group and not node)
            or (group and place.group == group)
            or (node and place.node == node and not place.group)
        ]

    def put(self, kv: KeyValue) -> Place | None:
        """Take in a key's new value. Returns what it names, or None for a key that is none of ours."""
        place = self._keys.place(kv.key)
        if place is None:
            return None
        try:
            self._put(place, kv)
        except LedgerError as error:
            self._forget(place)
            self._errors[kv.key] = (place, error)
        else:
            if self._errors:
                self._errors.pop(kv.key, None)
        return place

    def delete(self, key: bytes) -> Place | None:
        """Take in that a key is gone."""
        place = self._keys.place(key)
        if place is None:
            return None
        self._forget(place)
        self._errors.pop(key, None)
        return place

    def _put(self, place: Place, kv: KeyValue) -> None:
        match place.kind:
            case Kind.TICKET:
                self._queues[place.group] = self.queue(place.group).put(_kept(records.Ticket, place.name, kv))
            case Kind.TURN:
                self.turns[place.group] = _kept(records.Turn, place.group, kv)
            case Kind.ACK:
                self.acks[place.node][place.group] = _kept(records.Ack, place.node, kv)
            case Kind.DIRECTIVE:
                self.directives[place.node][place.group] = _kept(records.Directive, place.node, kv)
            case Kind.PROCESSES:
                self.processes[place.node][place.group] = _kept(records.Processes, place.node, kv)
            case Kind.SESSION:
                self.sessions[place.name] = _kept(records.Session, place.name, kv)
            case Kind.SPEC:
                self.specs[place.group] = _kept(records.GroupSpec, place.group, kv)
            case Kind.JOB:
                self.jobs[place.group][place.name] = _kept(records.Job, place.name, kv)
            case Kind.REPLICA:
                self.replicas[place.name] = _kept(records.Replica, place.name, kv)
            case Kind.COMPACTION:
                self.compaction = _kept(records.Compaction, "compaction", kv)
            case Kind.AGENT:
                self.agents[place.node] = _kept(records.Agent, place.node, kv)
            case Kind.DRAIN:
                self.drains[place.node] = _kept(records.Drain, place.node, kv)
            case Kind.CLAIM:
                self.claims[place.node][place.name] = _kept(records.Claim, place.name, kv)
            case Kind.REGISTERED:
                registered = _kept(records.Registered, place.name, kv)
                self.registered[place.node][place.group, place.name] = registered

    def _forget(self, place: Place) -> None:
        match place.kind:
            case Kind.TICKET:
                queue = self.queue(place.group).without(place.name)
                if queue:
                    self._queues[place.group] = queue
                else:
                    self._queues.pop(place.group, None)
            case Kind.TURN:
                self.turns.pop(place.group, None)
            case Kind.SPEC:
                self.specs.pop(place.group, None)
            case Kind.SESSION:
                self.sessions.pop(place.name, None)
            case Kind.REPLICA:
                self.replicas.pop(place.name, None)
            case Kind.COMPACTION:
                self.compaction = None
            case Kind.AGENT:
                self.agents.pop(place.node, None)
            case Kind.DRAIN:
                self.drains.pop(place.node, None)
            case Kind.JOB:
                _drop(self.jobs, place.group, place.name)
            case Kind.ACK:
                _drop(self.acks, place.node, place.group)
            case Kind.DIRECTIVE:
                _drop(self.directives, place.node, place.group)
            case Kind.PROCESSES:
                _drop(self.processes, place.node, place.group)
            case Kind.CLAIM:
                _drop(self.claims, place.node, place.name)
            case Kind.REGISTERED:
                _drop(self.registered, place.node, (place.group, place.name))


def _kept(cls: type[R], name: str, kv: KeyValue) -> Kept[R]:
    return Kept(name, decode(cls, kv.value), kv.create_revision, kv.mod_revision, kv.lease)


_Outer = TypeVar("_Outer")
_Inner = TypeVar("_Inner")


def _drop(table: dict[_Outer, dict[_Inner, R]], outer: _Outer, inner: _Inner) -> None:
    found = table.get(outer)
    if found is not None:
        found.pop(inner, None)
        if not found:
            del table[outer]
