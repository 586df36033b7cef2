# SPDX-License-Identifier: Apache-2.0
"""The records of the ledger: what is in etcd, as immutable Python values.

Each class mirrors the message of the same name in ``records.proto``, which documents the fields; a test holds the two
together. An enum's first member is what an absent field means.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ledger.codec import VERSION


@dataclass(frozen=True, slots=True)
class Process:
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


@dataclass(frozen=True, slots=True)
class NodeDevices:
    node: str = ""
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
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


@dataclass(frozen=True, slots=True)
class GroupSpec:
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


@dataclass(frozen=True, slots=True)
class Resident:
    """Who is able to run on the accelerators. Of MIXED, ``job`` is the one that was on before the failed commit."""

    kind: ResidentKind = ResidentKind.UNKNOWN
    job: str = ""
    ended: Ended = Ended.CLEAN
    lost_process: Process | None = None


@dataclass(frozen=True, slots=True)
class Incoming:
    job: str = ""
    ticket_revision: int = 0
    process: Process | None = None
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Holder:
    job: str = ""
    session: str = ""
    process: Process | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    reason: str = ""
    node: str = ""
    agent_revision: int = 0
    killing: bool = False


@dataclass(frozen=True, slots=True)
class Pinned:
    job: str = ""
    reason: str = ""
    processes_revision: int = 0


@dataclass(frozen=True, slots=True)
class Unrestored:
    """The last failed restore. An empty ``job`` stands for several jobs in a row."""

    node: str = ""
    job: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
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


@dataclass(frozen=True, slots=True)
class Ticket:
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


@dataclass(frozen=True, slots=True)
class Job:
    version: int = VERSION
    backend: str = ""
    health: Health = Health.OK
    why: str = ""


# ------------------------------------------------------------------------------------------------ sessions, replicas


@dataclass(frozen=True, slots=True)
class Session:
    version: int = VERSION
    process: Process | None = None
    secret_hash: str = ""
    sequence: int = 0
    replica: str = ""
    ttl_ms: int = 0


@dataclass(frozen=True, slots=True)
class Replica:
    version: int = VERSION
    address: str = ""
    release: str = ""
    record_version: int = 0


@dataclass(frozen=True, slots=True)
class Compaction:
    """A revision of the store, noted: history before it goes once the note has stood long enough."""

    version: int = VERSION
    revision: int = 0
    replica: str = ""


# ------------------------------------------------------------------------------------------------ nodes


@dataclass(frozen=True, slots=True)
class Device:
    uuid: str = ""
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    group: str = ""
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Agent:
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


@dataclass(frozen=True, slots=True)
class Directive:
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


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    process: Process | None = None
    state: ProcessState = ProcessState.RUNNING
    bytes: int = 0
    lost_session: Process | None = None
    out_of_turn: bool = False


@dataclass(frozen=True, slots=True)
class JobProcesses:
    job: str = ""
    processes: tuple[ProcessRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Processes:
    version: int = VERSION
    jobs: tuple[JobProcesses, ...] = ()
    strangers: tuple[Process, ...] = ()

    def of(self, job: str) -> tuple[ProcessRecord, ...]:
        return next((one.processes for one in self.jobs if one.job == job), ())


@dataclass(frozen=True, slots=True)
class Evidence:
    job: str = ""
    process: Process | None = None
    state: ProcessState = ProcessState.RUNNING
    bytes: int = 0
    took_ms: int = 0


@dataclass(frozen=True, slots=True)
class Ack:
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


@dataclass(frozen=True, slots=True)
class Claim:
    version: int = VERSION
    group: str = ""


@dataclass(frozen=True, slots=True)
class Registered:
    version: int = VERSION
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True)
class Drain:
    version: int = VERSION
    since: str = ""
    why: str = ""
