# SPDX-License-Identifier: Apache-2.0
"""What `decide` sees of a group: an immutable picture of the ledger at one revision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from coordinator.decide.decision import Wait
from ledger.kept import Kept
from ledger.queue import Queue
from ledger.records import (
    Ack,
    Agent,
    Claim,
    Directive,
    GroupSpec,
    Health,
    Job,
    Processes,
    ProcessState,
    Ticket,
    TicketState,
    Turn,
)


class NodeState(Struct, frozen=True):
    """One node, as far as one group is concerned. ``agent`` is None while the agent is away."""

    agent: Kept[Agent] | None = None
    directive: Kept[Directive] | None = None
    ack: Kept[Ack] | None = None
    processes: Kept[Processes] | None = None
    claims: Mapping[str, Kept[Claim]] = field(default_factory=dict)  # by device, of whichever group
    draining: bool = False


ABSENT = NodeState()


class GroupView(Struct, frozen=True):
    """A group at one revision of etcd.

    Attributes:
        revision: the store revision that this is a picture of.
        tickets: the queue. Nothing that follows from a hand-off goes through all of it.
        nodes: every node that the turn or the spec names, and every node where the group has a claim.
        passed: the waits that the caller has seen pass on its own clock.
    """

    name: str
    revision: int
    spec: Kept[GroupSpec] | None = None
    turn: Kept[Turn] | None = None
    tickets: Queue = field(default_factory=Queue)
    nodes: Mapping[str, NodeState] = field(default_factory=dict)
    jobs: Mapping[str, Kept[Job]] = field(default_factory=dict)
    passed: frozenset[Wait] = frozenset()

    def node(self, name: str) -> NodeState:
        return self.nodes.get(name, ABSENT)

    def ticket(self, job: str) -> Kept[Ticket] | None:
        return self.tickets.get(job)

    def waiting(self) -> Iterator[Kept[Ticket]]:
        """The tickets that wait, in the order in which they are to be served."""
        return self.tickets.waiting.values()

    def waits(self, job: str) -> Kept[Ticket] | None:
        """The job's ticket, if it has one that waits."""
        ticket = self.tickets.get(job)
        return ticket if ticket and ticket.value.state is TicketState.WAITING else None

    def quarantined(self, job: str) -> str | None:
        """Why the job is quarantined, or None."""
        kept = self.jobs.get(job)
        return kept.value.why if kept and kept.value.health is Health.QUARANTINED else None

    def claimed(self, node: str) -> tuple[str, ...]:
        """The node's devices that this group has."""
        claims = self.node(node).claims
        return tuple(sorted(device for device, claim in claims.items() if claim.value.group == self.name))

    def parked_on(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """The jobs that have living processes on record on any of these nodes."""
        jobs: set[str] = set()
        for node in nodes:
            kept = self.node(node).processes
            for one in kept.value.jobs if kept else ():
                if any(process.state is not ProcessState.FAILED for process in one.processes):
                    jobs.add(one.job)
        return tuple(sorted(jobs))

    def has_ended(self, job: str, nodes: tuple[str, ...]) -> bool:
        """Every one of these nodes has a record of processes, and none has a living one of the job."""
        recorded = all(self.node(node).processes for node in nodes)
        return recorded and job not in self.parked_on(nodes)

    def processes_revision(self, nodes: tuple[str, ...]) -> int:
        """The newest mod revision of the process records of these nodes."""
        records = (self.node(node).processes for node in nodes)
        return max((record.mod for record in records if record), default=0)

    def highest_epoch(self) -> int:
        """The highest epoch that an agent of the group says it has seen."""
        highest = 0
        for state in self.nodes.values():
            if state.agent:
                highest = max(highest, state.agent.value.highest_epoch(self.name))
        return highest
