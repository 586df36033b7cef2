# SPDX-License-Identifier: Apache-2.0
"""All failpoints by name. The code's own `hit` calls and this list are held against each other by a test.

``<party>.<what>.<how far>``: a point is passed right after what it is named for, and before anything else is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Party(Enum):
    """Whose process passes the point."""

    REPLICA = "replica"
    AGENT = "agent"
    AGENT_HELPER = "agent_helper"
    CLIENT_HELPER = "client"
    ANY = "ledger"  # whoever has a lease of its own: an agent or a replica


class Traffic(Enum):
    """What has to happen for the point to be passed, besides jobs that take turns."""

    TURNS = "turns"
    RELEASE = "a waiter gives up in the middle of its own switch"
    SESSIONS = "sessions are opened, used and closed"
    SILENCE = "a session's client falls silent"
    RESUME = "a replica dies, and its clients go on with another"
    REGISTRATION = "an agent's registration is taken from it"
    START = "an agent is started"
    PROCESSES = "the processes of a job that is off the devices end"


@dataclass(frozen=True, slots=True)
class Point:
    """One failpoint."""

    name: str
    traffic: Traffic = Traffic.TURNS

    @property
    def party(self) -> Party:
        return Party(self.name.partition(".")[0])


def _points() -> Iterator[Point]:
    # A session's life, as its replica sees it.
    for step in ("leased", "opened", "given_back", "closed"):
        yield Point(f"replica.session.{step}", Traffic.SESSIONS)
    yield Point("replica.session.resumed", Traffic.RESUME)
    for step in ("due", "deleted", "expired"):
        yield Point(f"replica.session.{step}", Traffic.SILENCE)
    yield from map(Point, ("replica.beat.heard", "replica.beat.renewed", "ledger.lease.renewed"))
    # A ticket's life, and the turn's.
    yield from map(Point, ("replica.ticket.asked", "replica.ticket.written"))
    yield from map(Point, ("replica.yield.asked", "replica.yield.written"))
    yield from (Point(f"replica.cancel.{step}", Traffic.RELEASE) for step in ("asked", "written"))
    for phase in ("preparing", "committing", "held"):
        yield from (Point(f"replica.{phase}.{step}") for step in ("decided", "written"))
    for phase in ("releasing", "idle"):
        yield from (Point(f"replica.{phase}.{step}", Traffic.RELEASE) for step in ("decided", "written"))
    # An agent's registration.
    for step in ("lease.noted", "lease.granted", "registered", "registration.ended"):
        yield Point(f"agent.{step}", Traffic.REGISTRATION)
    # A switch, as an agent carries it out.
    yield Point("agent.epoch")
    yield from (Point(f"agent.prepare.{step}") for step in ("checked", "locked", "acked"))
    for step in ("locked", "begun", "saved", "free", "restored", "resumed", "acked"):
        yield Point(f"agent.commit.{step}")
    yield from (Point(f"agent.release.{step}", Traffic.RELEASE) for step in ("undone", "acked"))
    yield Point("agent.record.written", Traffic.PROCESSES)
    # The driver's calls, in the agent's helpers.
    for call in ("look", "check", "lock", "checkpoint", "restore", "unlock"):
        yield from (Point(f"agent_helper.{call}.{step}") for step in ("asked", "made"))
    for call in ("unready", "devices"):
        yield from (Point(f"agent_helper.{call}.{step}", Traffic.START) for step in ("asked", "made"))
    # A session's life, as the client's helper sees it.
    yield from (Point(f"client.{request}.sent") for request in ("beat", "acquire", "yield"))
    yield from (Point(f"client.{request}.sent", Traffic.SESSIONS) for request in ("open", "close"))
    yield Point("client.resume.sent", Traffic.RESUME)
    yield Point("client.cancel.sent", Traffic.RELEASE)
    for event in ("beat", "queued", "switching", "granted", "yielded"):
        yield from (Point(f"client.{event}.{step}") for step in ("heard", "told"))
    yield from (Point(f"client.cancelled.{step}", Traffic.RELEASE) for step in ("heard", "told"))
    for event in ("opened", "closed"):
        yield from (Point(f"client.{event}.{step}", Traffic.SESSIONS) for step in ("heard", "told"))


POINTS: tuple[Point, ...] = tuple(_points())
