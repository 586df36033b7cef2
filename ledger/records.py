# SPDX-License-Identifier: Apache-2.0
"""The records of the ledger: what is in etcd, as immutable Python values.

Each class mirrors the message of the same name in ``records.proto``, which documents the fields; a test holds the two
together. An enum's first member is what an absent field means.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from ledger.codec import VERSION


class Record(Struct, frozen=True, rename="camel"):
    """A message as a value; its fields have the message's names, and in JSON those of the canonical form."""


class Process(Record, frozen=True):
    """One operating-system process, told apart from any other that ever had its pid."""

    boot_id: str = ""
    pid: int = 0
    start_time: int = 0


# ------------------------------------------------------------------------------------------------ groups


class LostPolicy(Enum):
    PARK_OR_KILL = "LOST_POLICY_PARK_OR_KILL"
    PARK_ONLY = "LOST_POLICY_PARK_ONLY"


class NodeLostPolicy(Enum):
    WAIT = "NODE_LOST_POLICY_WAIT"
    DROP = "NODE_LOST_POLICY_DROP"


class NodeDevices(Record, frozen=True):
    node: str = ""
    devices: tuple[str, ...] = ()


class Policy(Record, frozen=True):
    """How a group treats its jobs. Durations in milliseconds; 0 means the default (`ledger.defaults`)."""

    lost: LostPolicy = LostPolicy.PARK_OR_KILL
    lost_grace_ms: int = 0
    parked_ttl_ms: int = 0
    node_lost: NodeLostPolicy = NodeLostPolicy.WAIT
    drop_after_ms: int = 0
    prepare_ms: int = 0
    commit_ms: int = 0
    aging: bool = False
    max_hold_ms: int = 0


class GroupSpec(Record, frozen=True):
    version: int = VERSION
    nodes: tuple[NodeDevices, ...] = ()
    policy: Policy | None = None
    deleting: bool = False
    force: bool = False


class Phase(Enum):
    IDLE = "PHASE_IDLE"
    HELD = "PHASE_HELD"
    PREPARING = "PHASE_PREPARING"
    COMMITTING = "PHASE_COMMITTING"
    RELEASING = "PHASE_RELEASING"


class ResidentKind(Enum):
    UNKNOWN = "RESIDENT_KIND_UNKNOWN"
    NOBODY = "RESIDENT_KIND_NOBODY"
    JOB = "RESIDENT_KIND_JOB"
    MIXED = "RESIDENT_KIND_MIXED"


class Ended(Enum):
    CLEAN = "ENDED_CLEAN"
    LOST = "ENDED_LOST"


class Resident(Record, frozen=True):
    """Who is able to run on the accelerators. Of MIXED, ``job`` is the one that was on before the failed commit."""

    kind: ResidentKind = ResidentKind.UNKNOWN
    job: str = ""
    ended: Ended = Ended.CLEAN
    lost_process: Process | None = None


class Incoming(Record, frozen=True):
    job: str = ""
    ticket_revision: int = 0
    process: Process | None = None
    cancelled: bool = False


class Holder(Record, frozen=True):
    job: str = ""
    session: str = ""
    process: Process | None = None


class Blocked(Record, frozen=True):
    reason: str = ""
    node: str = ""
    agent_revision: int = 0
    killing: bool = False


class Pinned(Record, frozen=True):
    job: str = ""
    reason: str = ""
    processes_revision: int = 0


class Unrestored(Record, frozen=True):
    """The last failed restore. An empty ``job`` stands for several jobs in a row."""

    node: str = ""
    job: str = ""
    why: str = ""


class Turn(Record, frozen=True):
    """The group's one record: who is on, and which phase the switch is in."""

    version: int = VERSION
    phase: Phase = Phase.IDLE
    epoch: int = 0
    token: int = 0
    yielded_token: int = 0
    holder: Holder | None = None
    resident: Resident | None = None
    incoming: Incoming | None = None
    nodes: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    generation: int = 0
    attempt: int = 0
    blocked: Blocked | None = None
    pinned: Pinned | None = None
    paused: bool = False
    kill: bool = False
    traceparent: str = ""
    unrestored: Unrestored | None = None
    passed_over: int = 0


class TicketState(Enum):
    WAITING = "TICKET_STATE_WAITING"
    GRANTED = "TICKET_STATE_GRANTED"
    REFUSED = "TICKET_STATE_REFUSED"


class Ticket(Record, frozen=True):
    version: int = VERSION
    session: str = ""
    process: Process | None = None
    sequence: int = 0
    state: TicketState = TicketState.WAITING
    token: int = 0
    restored: bool = False
    lost: tuple[Process, ...] = ()
    why: str = ""
    reason: str = ""
    priority: int = 0
    groups: tuple[str, ...] = ()
    traceparent: str = ""


class Health(Enum):
    OK = "HEALTH_OK"
    QUARANTINED = "HEALTH_QUARANTINED"


class Job(Record, frozen=True):
    version: int = VERSION
    backend: str = ""
    health: Health = Health.OK
    why: str = ""


# ------------------------------------------------------------------------------------------------ sessions, replicas


class Session(Record, frozen=True):
    version: int = VERSION
    process: Process | None = None
    secret_hash: str = ""
    sequence: int = 0
    replica: str = ""
    ttl_ms: int = 0


class Replica(Record, frozen=True):
    version: int = VERSION
    address: str = ""
    release: str = ""
    record_version: int = 0


class Compaction(Record, frozen=True):
    """A revision of the store, noted: history before it goes once the note has stood long enough."""

    version: int = VERSION
    revision: int = 0
    replica: str = ""


# ------------------------------------------------------------------------------------------------ nodes


class Device(Record, frozen=True):
    uuid: str = ""
    memory_bytes: int = 0


class GroupEpoch(Record, frozen=True):
    group: str = ""
    epoch: int = 0


class Agent(Record, frozen=True):
    """An agent's registration; its create revision is the agent's incarnation."""

    version: int = VERSION
    boot_id: str = ""
    address: str = ""
    capabilities: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    host_memory_bytes: int = 0
    highest: tuple[GroupEpoch, ...] = ()
    release: str = ""
    parked_means_stopped: bool = False

    def highest_epoch(self, group: str) -> int:
        highest = 0
        for one in self.highest:
            if one.group == group and one.epoch > highest:
                highest = one.epoch
        return highest


class DirectiveKind(Enum):
    PREPARE = "DIRECTIVE_KIND_PREPARE"
    COMMIT = "DIRECTIVE_KIND_COMMIT"
    RELEASE = "DIRECTIVE_KIND_RELEASE"


class Directive(Record, frozen=True):
    version: int = VERSION
    epoch: int = 0
    kind: DirectiveKind = DirectiveKind.PREPARE
    on: str = ""
    keep: bool = False
    devices: tuple[str, ...] = ()
    allowed_ms: int = 0
    attempt: int = 0
    kill: bool = False
    lost_job: str = ""
    lost_process: Process | None = None
    on_process: Process | None = None
    parked_ttl_ms: int = 0
    traceparent: str = ""


class Outcome(Enum):
    UNSPECIFIED = "OUTCOME_UNSPECIFIED"
    PREPARED = "OUTCOME_PREPARED"
    REFUSED = "OUTCOME_REFUSED"
    COMMITTED = "OUTCOME_COMMITTED"
    FAILED = "OUTCOME_FAILED"
    RELEASED = "OUTCOME_RELEASED"
    STALE = "OUTCOME_STALE"


class Fault(Enum):
    NONE = "FAULT_NONE"
    OUTGOING = "FAULT_OUTGOING"
    INCOMING = "FAULT_INCOMING"
    NODE = "FAULT_NODE"


class Failure(Enum):
    NONE = "FAILURE_NONE"
    NOT_SAVED = "FAILURE_NOT_SAVED"
    PROCESS_LOST = "FAILURE_PROCESS_LOST"
    NOT_RESTORED = "FAILURE_NOT_RESTORED"


class ProcessState(Enum):
    RUNNING = "PROCESS_STATE_RUNNING"
    LOCKED = "PROCESS_STATE_LOCKED"
    PARKED = "PROCESS_STATE_PARKED"
    FAILED = "PROCESS_STATE_FAILED"


class ProcessRecord(Record, frozen=True):
    process: Process | None = None
    state: ProcessState = ProcessState.RUNNING
    bytes: int = 0
    lost_session: Process | None = None
    out_of_turn: bool = False


class JobProcesses(Record, frozen=True):
    job: str = ""
    processes: tuple[ProcessRecord, ...] = ()


class Processes(Record, frozen=True):
    version: int = VERSION
    jobs: tuple[JobProcesses, ...] = ()
    strangers: tuple[Process, ...] = ()

    def of(self, job: str) -> tuple[ProcessRecord, ...]:
        return next((one.processes for one in self.jobs if one.job == job), ())


class Evidence(Record, frozen=True):
    job: str = ""
    process: Process | None = None
    state: ProcessState = ProcessState.RUNNING
    bytes: int = 0
    took_ms: int = 0


class Ack(Record, frozen=True):
    version: int = VERSION
    directive_revision: int = 0
    epoch: int = 0
    incarnation: int = 0
    outcome: Outcome = Outcome.UNSPECIFIED
    fault: Fault = Fault.NONE
    failure: Failure = Failure.NONE
    job: str = ""
    why: str = ""
    highest_epoch: int = 0
    evidence: tuple[Evidence, ...] = ()
    lost: tuple[Process, ...] = ()
    restored: bool = False
    took_ms: int = 0
    free_bytes: int = 0


class Claim(Record, frozen=True):
    version: int = VERSION
    group: str = ""


class Registered(Record, frozen=True):
    version: int = VERSION
    processes: tuple[Process, ...] = ()


class Drain(Record, frozen=True):
    version: int = VERSION
    since: str = ""
    why: str = ""
