# SPDX-License-Identifier: Apache-2.0
"""What a directive means for what is found on the node. Pure: no input, no output, no clock.

The rules named here are those of the protocol (docs/protocol.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from ledger.records import (
    Directive,
    Evidence,
    Fault,
    JobProcesses,
    Process,
    Processes,
    ProcessRecord,
    ProcessState,
)
from nodeagent.backends.base import Findings, Found
from nodeagent.backends.driver import Verdict

EVIDENCE_LIMIT = 32
_RUNNABLE = (ProcessState.RUNNING, ProcessState.LOCKED)
_OFF = (ProcessState.PARKED, ProcessState.LOCKED, ProcessState.FAILED)
"""On record as off the devices. One that is not found any more has ended: its job is told at its next turn."""


class Refusal(Struct, frozen=True):
    """Why a directive is not carried out, and whose fault that is."""

    fault: Fault
    why: str
    job: str = ""


class Scene(Struct, frozen=True):
    """What a decision about one group is made on.

    Attributes:
        records: the processes recorded in the ledger before this directive.
        foreign: the node's devices that other groups have.
        sizes: bytes of each process, as its check said.
    """

    directive: Directive
    records: Processes
    findings: Findings
    foreign: frozenset[str] = frozenset()
    sizes: Mapping[Process, int] = field(default_factory=dict)

    def record(self, process: Process) -> ProcessRecord | None:
        for job in self.records.jobs:
            for one in job.processes:
                # By the number first: a switch comes here some thirty times, and few have the same.
                if one.process and one.process.pid == process.pid and one.process == process:
                    return one
        return None

    def bytes(self, process: Process) -> int:
        record = self.record(process)
        return self.sizes.get(process) or (record.bytes if record else 0)


def outgoing(scene: Scene) -> tuple[Found, ...]:
    """What is on the devices and must go: whatever is not of the job that shall be on (rule 8)."""
    return tuple(
        one
        for one in scene.findings.found
        if one.state is not ProcessState.PARKED
        and (one.job != scene.directive.on or _of_lost_session(scene, one.process, one.job))
    )


def staying(scene: Scene) -> tuple[Found, ...]:
    """What is on the devices and belongs there. It is never locked (rule 38)."""
    out = outgoing(scene)
    return tuple(one for one in scene.findings.found if one.state in _RUNNABLE and one not in out)


def restorable(scene: Scene) -> tuple[Found, ...]:
    """The parked processes to bring back: none of a session that was lost, but for that very session (rule 5)."""
    return tuple(
        one
        for one in scene.findings.found
        if one.state is ProcessState.PARKED and one.job == scene.directive.on and _session_allows(scene, one)
    )


def locked(scene: Scene) -> tuple[Found, ...]:
    """What belongs on the devices and cannot run yet."""
    return tuple(one for one in staying(scene) if one.state is ProcessState.LOCKED)


def moves_nothing(scene: Scene) -> bool:
    """Whether the switch has nothing to save, to kill, to restore or to resume here."""
    return not (outgoing(scene) or restorable(scene) or locked(scene))


def with_state(scene: Scene, processes: Iterable[Found], state: ProcessState) -> Scene:
    """The scene once the driver has brought these processes into ``state``."""
    changed = {one.process for one in processes}
    found = tuple(replace(one, state=state) if one.process in changed else one for one in scene.findings.found)
    return replace(scene, findings=replace(scene.findings, found=found))


def gone(scene: Scene, job: str) -> tuple[Process, ...]:
    """The processes of a job that were recorded off the devices and have ended since: lost (rule 9)."""
    there = {one.process for one in scene.findings.found}
    return tuple(
        one.process for one in scene.records.of(job) if one.process and one.process not in there and one.state in _OFF
    )


def brought_back(scene: Scene) -> bool:
    """Whether a process of the incoming job that was recorded as parked can run now."""
    parked = {one.process for one in scene.records.of(scene.directive.on) if one.state is ProcessState.PARKED}
    return any(one.process in parked and one.state is ProcessState.RUNNING for one in scene.findings.found)


def judge_findings(scene: Scene) -> Refusal | None:
    """Whether what is there allows a switch at all."""
    findings, directive = scene.findings, scene.directive
    if findings.strangers:
        pids = ", ".join(str(one.pid) for one in findings.strangers[:8])
        return Refusal(Fault.NODE, f"process {pids} is on the devices and belongs to no job of the group")
    for one in findings.found:
        fault = Fault.INCOMING if one.job == directive.on else Fault.OUTGOING
        if scene.foreign.intersection(one.devices):
            why = f"process {one.process.pid} uses devices of two groups"
            return Refusal(fault, why, one.job)
        if one.state is ProcessState.FAILED and one.job == directive.on and not directive.kill:
            return Refusal(fault, f"process {one.process.pid} is FAILED", one.job)
    return None


def judge_checks(scene: Scene, verdicts: Mapping[Process, Verdict]) -> Refusal | None:
    """Whether all that goes can be saved and brought back. Under ``kill`` it need not be."""
    if scene.directive.kill:
        return None
    for one in outgoing(scene):
        verdict = verdicts.get(one.process)
        if one.state is not ProcessState.FAILED and verdict and verdict.refused:
            return Refusal(Fault.OUTGOING, f"process {one.process.pid}: {verdict.refused}", one.job)
    return None


def judge_incoming(scene: Scene) -> Refusal | None:
    """Whether the devices can hold what is to be brought back, once the rest is off."""
    room = sum(one.total_bytes for one in scene.findings.use)
    need = sum(scene.bytes(one.process) for one in (*restorable(scene), *staying(scene)))
    if need <= room:
        return None
    why = f"{need} bytes are to be brought back, the devices have {room}"
    return Refusal(Fault.INCOMING, why, scene.directive.on)


def doomed(scene: Scene, verdicts: Mapping[Process, Verdict], *, short: bool) -> tuple[Found, ...]:
    """What is killed instead of saved: under ``kill`` what a check refuses or memory cannot hold; FAILED always."""
    kill = scene.directive.kill
    return tuple(
        one
        for one in outgoing(scene)
        if one.state is ProcessState.FAILED
        or (kill and (short or bool((verdict := verdicts.get(one.process)) and verdict.refused)))
    )


def judge_free(scene: Scene, baseline_bytes: int) -> Refusal | None:
    """Whether the devices are free for the incoming job, by their own account (rule 8)."""
    for one in outgoing(scene):
        return Refusal(Fault.OUTGOING, f"process {one.process.pid} of {one.job} is still there", one.job)
    if staying(scene):
        return None  # what is in use is the incoming job's
    for use in scene.findings.use:
        if use.used_bytes > baseline_bytes:
            why = f"{use.used_bytes} bytes of {use.uuid} are still in use, at most {baseline_bytes} are its own"
            return Refusal(Fault.OUTGOING, why)
    return None


def processes(scene: Scene, *, done: bool = False) -> Processes:
    """The record of what is there. ``done``: the incoming job is on, and what it lost has been named."""
    found = {one.process: one for one in scene.findings.found}
    jobs: dict[str, list[ProcessRecord]] = {}
    for one in scene.findings.found:
        jobs.setdefault(one.job, []).append(_record(scene, one))
    for job, old in _all(scene.records):
        kept = old.state in _OFF and old.process not in found
        if kept and not (done and job == scene.directive.on):
            jobs.setdefault(job, []).append(_ended(old))
    return _sorted(jobs, scene.findings.strangers)


def between_switches(records: Processes, findings: Findings, on: str | None) -> Processes:
    """The record of a look while no switch is in hand. ``on``: whose turn it is; None: not known here."""
    scene = Scene(Directive(on=on or ""), records, findings)
    jobs: dict[str, list[ProcessRecord]] = {}
    for one in findings.found:
        out = on is not None and one.job != on and one.state in _RUNNABLE
        jobs.setdefault(one.job, []).append(replace(_record(scene, one), out_of_turn=out))
    there = {one.process for one in findings.found}
    for job, old in _all(records):
        # Of a session that was lost, and so never brought back, nothing is kept once it has ended.
        off = old.state in _OFF and old.lost_session is None
        if off and old.process not in there:
            jobs.setdefault(job, []).append(_ended(old))
    return _sorted(jobs, findings.strangers)


def to_unlock(findings: Findings) -> tuple[Found, ...]:
    """What is LOCKED while no switch is in hand, as after a lock that came too late: only if no other job can run."""
    locked = [one for one in findings.found if one.state is ProcessState.LOCKED]
    able = {one.job for one in findings.found if one.state in _RUNNABLE}
    return tuple(locked) if len(able) == 1 else ()


def evidence(scene: Scene, took_ms: Mapping[Process, int]) -> tuple[Evidence, ...]:
    """What is said of each process in an acknowledgement: at most 32."""
    return tuple(
        Evidence(one.job, one.process, one.state, scene.bytes(one.process), took_ms.get(one.process, 0))
        for one in scene.findings.found[:EVIDENCE_LIMIT]
    )


def parked_bytes(all_records: Iterable[Processes], among: Callable[[Iterable[Process]], Iterable[Process]]) -> int:
    """Host memory that parked processes have. One that has ended has none, though its record stays (rule 9).

    Args:
        among: those of some processes that are alive.
    """
    parked = {
        one.process: one.bytes
        for records in all_records
        for _, one in _all(records)
        if one.state is ProcessState.PARKED and one.process
    }
    return sum(parked[one] for one in among(parked))


def _of_lost_session(scene: Scene, process: Process, job: str) -> bool:
    """Whether a process of the incoming job belongs to a session that was lost, not to the one that is served.

    A job that was evicted after it had given its turn back was taken off in order: no session of it is named as lost.
    """
    directive, served = scene.directive, scene.directive.on_process
    if job != directive.lost_job or served is None or directive.lost_process in (None, served):
        return False
    # What was started after the served session's own process is that session's.
    return served.boot_id != process.boot_id or process.start_time < served.start_time


def _session_allows(scene: Scene, one: Found) -> bool:
    if _of_lost_session(scene, one.process, one.job):
        return False
    record = scene.record(one.process)
    lost = record.lost_session if record else None
    return lost is None or lost == scene.directive.on_process


def _ended(old: ProcessRecord) -> ProcessRecord:
    """A recorded process that is gone: it keeps its place in the record, and holds nothing."""
    return replace(old, state=ProcessState.FAILED, bytes=0)


def _record(scene: Scene, one: Found) -> ProcessRecord:
    """What is off the devices, or about to go, carries the session whose turn it lost: its COMMIT may be taken away
    between save and answer, and nobody would know any more (rule 5)."""
    return ProcessRecord(one.process, one.state, scene.bytes(one.process), _lost_session(scene, one))


def _lost_session(scene: Scene, one: Found) -> Process | None:
    old, directive = scene.record(one.process), scene.directive
    going = one.state is ProcessState.LOCKED and one in outgoing(scene)
    if not going and one.state is not ProcessState.PARKED:
        return None
    if old is not None and (old.lost_session or old.state is ProcessState.PARKED):
        return old.lost_session
    return directive.lost_process if one.job == directive.lost_job else None


def _all(records: Processes) -> Iterable[tuple[str, ProcessRecord]]:
    return ((job.job, one) for job in records.jobs for one in job.processes)


def _sorted(jobs: Mapping[str, list[ProcessRecord]], strangers: tuple[Process, ...]) -> Processes:
    def place(one: ProcessRecord) -> int:
        return one.process.pid if one.process else 0

    listed = (JobProcesses(job, tuple(sorted(jobs[job], key=place))) for job in sorted(jobs))
    return Processes(jobs=tuple(listed), strangers=strangers)
