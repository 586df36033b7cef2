# SPDX-License-Identifier: Apache-2.0
"""What is in etcd can be read without this project: by another client, from the messages of `protos/` alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message import Message

import tsclient as ts
from chaos.dev.job import Rhythm
from chaos.world import World
from ledger.keys import DEFAULT_PREFIX, Keys, Kind
from timeslice_proto.v1 import records_pb2 as pb

READER = Path(__file__).with_name("foreign_reader.py")
WITHIN = 60.0
QUEUED = ("third", "first", "second")  # not in the order of their names

MESSAGES: dict[Kind, type[Message]] = {
    Kind.SPEC: pb.GroupSpec,
    Kind.TURN: pb.Turn,
    Kind.TICKET: pb.Ticket,
    Kind.SESSION: pb.Session,
    Kind.REPLICA: pb.Replica,
    Kind.AGENT: pb.Agent,
    Kind.DIRECTIVE: pb.Directive,
    Kind.ACK: pb.Ack,
    Kind.PROCESSES: pb.Processes,
    Kind.CLAIM: pb.Claim,
    Kind.COMPACTION: pb.Compaction,
}


@dataclass(frozen=True, slots=True)
class Read:
    """A key as the other client read it. ``leased``: the keys that its lease says it has."""

    kind: Kind
    name: str
    key: str
    message: Any  # of the type that MESSAGES says
    create: int
    lease: int
    leased: frozenset[str]


def read(endpoint: str) -> list[Read]:
    """All keys, in the order of their create revisions; AssertionError for one that the protos do not explain."""
    environment = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    done = subprocess.run(
        [sys.executable, str(READER), endpoint, DEFAULT_PREFIX],
        capture_output=True,
        text=True,
        timeout=WITHIN,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [_read(json.loads(line)) for line in done.stdout.splitlines()]


def _read(line: dict[str, object]) -> Read:
    key = str(line["key"])
    place = Keys().place(key.encode())
    assert place is not None, f"{key} is a key that nobody knows"
    message = json_format.Parse(str(line["value"]), MESSAGES[place.kind]())  # raises for a field that it has not
    leased = line["leased"]
    assert isinstance(leased, list)
    name = place.name or place.node or place.group
    return Read(place.kind, name, key, message, int(str(line["create"])), int(str(line["lease"])), frozenset(leased))


def _queue(client: ts.Client, group: str, pool: ThreadPoolExecutor) -> None:
    """Let it wait for a turn, and return once it has its place."""
    queued = threading.Event()

    def wait() -> None:
        client.acquire(group, timeout=WITHIN, on_progress=lambda _: queued.set()).yield_()

    pool.submit(wait)
    assert queued.wait(WITHIN)


@pytest.fixture
def everything() -> Iterator[list[Read]]:
    """All keys of a system in which one job holds the turn of two nodes, after a switch, and three wait for it."""
    with ExitStack() as stack:
        world = stack.enter_context(World(replicas=1, nodes=2))
        before = world.start_job("before", rhythm=Rhythm(busy=0.1, kernel=0.1))
        before.run()
        before.wait_turns(1, WITHIN)
        before.rest()
        before.wait_rested(WITHIN)
        holder = world.start_job("holder", rhythm=Rhythm(busy=3600.0))
        holder.run()
        holder.wait_granted(1, WITHIN)
        pool = stack.enter_context(ThreadPoolExecutor(len(QUEUED)))
        clients = [stack.enter_context(ts.connect(world.endpoints, job=job)) for job in QUEUED]
        for client in clients:
            _queue(client, world.group, pool)
        yield read(world.etcd.endpoints[0])
        holder.child.kill()
        for client in clients:
            client.close()


def test_another_client_can_read_everything(everything: list[Read]) -> None:
    assert {one.kind for one in everything} == set(MESSAGES)
    assert all(one.message.version == 1 for one in everything)

    tickets = {one.name: one for one in everything if one.kind is Kind.TICKET}
    assert tuple(tickets) == ("holder", *QUEUED), "the order of the create revisions is the order of the queue"

    sessions = {one.name: one for one in everything if one.kind is Kind.SESSION}
    for ticket in tickets.values():
        session = sessions[ticket.message.session]
        assert ticket.lease == session.lease == int(session.name, 16)
        assert {ticket.key, session.key} <= ticket.leased

    (turn,) = (one.message for one in everything if one.kind is Kind.TURN)
    granted = [name for name, one in tickets.items() if one.message.state == pb.TICKET_STATE_GRANTED]
    assert granted == ["holder"] == [turn.holder.job]
    assert turn.phase == pb.PHASE_HELD
    assert turn.token == tickets["holder"].message.token

    processes = [one.message for one in everything if one.kind is Kind.PROCESSES]
    parked = [one for each in processes for one in each.jobs if one.job == "before"]
    assert len(parked) == 2
    assert all(one.processes[0].state == pb.PROCESS_STATE_PARKED for one in parked)
    # What outlives every process is on no lease.
    lasting = (Kind.SPEC, Kind.TURN, Kind.DIRECTIVE, Kind.ACK, Kind.PROCESSES, Kind.CLAIM, Kind.COMPACTION)
    assert {one.kind for one in everything if not one.lease} == set(lasting)
