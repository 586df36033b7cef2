# SPDX-License-Identifier: Apache-2.0
"""The names of the keys in etcd, in both directions.

All keys stand under one configurable prefix. All that an agent writes stands under ``nodes/<node>/``, so that its
etcd role can be limited to that range.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

from msgspec import Struct

from ledger.errors import BadName

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")

DEFAULT_PREFIX = "/timeslice/"

_REMEMBERED = 1 << 15
"""Keys, the least used of which are forgotten: of some thousand groups."""


def check_name(kind: str, name: str) -> str:
    """Return ``name``, or raise `BadName` when it is no name for a group, job or node."""
    if not _NAME.fullmatch(name):
        raise BadName(kind, name)
    return name


def check_device(name: str) -> str:
    """Return ``name``, or raise `BadName` when it cannot be the UUID of a device."""
    if not _DEVICE.fullmatch(name):
        raise BadName("device", name)
    return name


class Kind(Enum):
    """What a key holds."""

    SPEC = "spec"
    TURN = "turn"
    TICKET = "ticket"
    JOB = "job"
    SESSION = "session"
    REPLICA = "replica"
    COMPACTION = "compaction"
    AGENT = "agent"
    DRAIN = "drain"
    DIRECTIVE = "directive"
    ACK = "ack"
    PROCESSES = "processes"
    CLAIM = "claim"
    REGISTERED = "registered"


class Place(Struct, frozen=True):
    """What a key names: its kind and the names in it (``""`` where the kind has none)."""

    kind: Kind
    group: str = ""
    node: str = ""
    name: str = ""  # the job, session, replica or device


class Keys:
    """Makes and reads the keys under one prefix."""

    def __init__(self, prefix: str = DEFAULT_PREFIX) -> None:
        self.prefix = prefix if prefix.endswith("/") else prefix + "/"
        self._head = self.prefix.encode()
        # The same few keys are made and read at each step.
        self._key = lru_cache(_REMEMBERED)(self._make)
        self.place = lru_cache(_REMEMBERED)(self._place)

    @property
    def root(self) -> bytes:
        return self._head

    def spec(self, group: str) -> bytes:
        return self._key("groups", group, "spec")

    def turn(self, group: str) -> bytes:
        return self._key("groups", group, "turn")

    def tickets(self, group: str) -> bytes:
        return self._key("groups", group, "tickets", "")

    def ticket(self, group: str, job: str) -> bytes:
        return self._key("groups", group, "tickets", job)

    def jobs(self, group: str) -> bytes:
        return self._key("groups", group, "jobs", "")

    def job(self, group: str, job: str) -> bytes:
        return self._key("groups", group, "jobs", job)

    def session(self, session: str) -> bytes:
        return self._key("sessions", session)

    def replicas(self) -> bytes:
        return self._key("replicas", "")

    def replica(self, replica: str) -> bytes:
        return self._key("replicas", replica)

    def compaction(self) -> bytes:
        return self._key("compaction")

    def node(self, node: str) -> bytes:
        return self._key("nodes", node, "")

    def agent(self, node: str) -> bytes:
        return self._key("nodes", node, "agent")

    def drain(self, node: str) -> bytes:
        return self._key("nodes", node, "drain")

    def directives(self, node: str) -> bytes:
        return self._key("nodes", node, "directives", "")

    def directive(self, node: str, group: str) -> bytes:
        return self._key("nodes", node, "directives", group)

    def ack(self, node: str, group: str) -> bytes:
        return self._key("nodes", node, "acks", group)

    def processes(self, node: str, group: str) -> bytes:
        return self._key("nodes", node, "processes", group)

    def claim(self, node: str, device: str) -> bytes:
        return self._key("nodes", node, "claims", device)

    def registered(self, node: str, group: str, job: str) -> bytes:
        return self._key("nodes", node, "registered", group, job)

    def _place(self, key: bytes) -> Place | None:
        """What ``key`` names, or None for a key that is none of ours."""
        if not key.startswith(self._head):
            return None
        try:
            parts = key[len(self._head) :].decode().split("/")
        except UnicodeDecodeError:
            return None
        match parts:
            case ["groups", group, "spec"]:
                return Place(Kind.SPEC, group=group)
            case ["groups", group, "turn"]:
                return Place(Kind.TURN, group=group)
            case ["groups", group, "tickets", job]:
                return Place(Kind.TICKET, group=group, name=job)
            case ["groups", group, "jobs", job]:
                return Place(Kind.JOB, group=group, name=job)
            case ["sessions", session]:
                return Place(Kind.SESSION, name=session)
            case ["replicas", replica]:
                return Place(Kind.REPLICA, name=replica)
            case ["compaction"]:
                return Place(Kind.COMPACTION)
            case ["nodes", node, "agent"]:
                return Place(Kind.AGENT, node=node)
            case ["nodes", node, "drain"]:
                return Place(Kind.DRAIN, node=node)
            case ["nodes", node, "directives", group]:
                return Place(Kind.DIRECTIVE, group=group, node=node)
            case ["nodes", node, "acks", group]:
                return Place(Kind.ACK, group=group, node=node)
            case ["nodes", node, "processes", group]:
                return Place(Kind.PROCESSES, group=group, node=node)
            case ["nodes", node, "claims", device]:
                return Place(Kind.CLAIM, node=node, name=device)
            case ["nodes", node, "registered", group, job]:
                return Place(Kind.REGISTERED, group=group, node=node, name=job)
            case _:
                return None

    def _make(self, *parts: str) -> bytes:
        return (self.prefix + "/".join(parts)).encode()
