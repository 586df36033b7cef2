# SPDX-License-Identifier: Apache-2.0
"""What is to hold on a device, whatever it is: told once, tested on the simulated device and on real ones."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from chaos.observer import Seen
from ledger.records import Phase, TicketState
from nodeagent import procfs
from tests.gpu.rig import GROUP, WITHIN, Driven, Job, Obstacle, Rig

GIB = 1 << 30
OTHERS = GIB
"""What a device may have in use beside the processes that are on it."""


@dataclass(frozen=True, slots=True)
class HandOff:
    """From the call of yield to the next job's grant, in seconds, and the driver's parts of it."""

    total: float
    driver: dict[str, float]

    @property
    def coordination(self) -> float:
        return self.total - sum(self.driver.values())


def take_turns(rig: Rig, jobs: Sequence[Job], turns: int) -> list[HandOff]:
    """Let each job take one turn, then all ``turns`` more at once.

    Every tensor is always as it was, and only the holder is on the device.
    """
    known = {job.pid: job for job in jobs}
    for job in jobs:
        job.do("turns 1")  # its state is made, so that from here on each change of jobs moves both
    done = {job.name: len(job.said("done")) for job in jobs}
    for job in jobs:
        job.tell(f"turns {turns}")
    for job in jobs:
        job.wait("done", done[job.name] + 1, WITHIN * turns)
    spans = sorted(
        (
            (grant["granted"], end["yielding"], grant["token"], job, grant)
            for job in jobs
            for grant, end in zip(job.said("granted"), job.said("yielded"), strict=True)
        ),
        key=lambda one: one[0],
    )
    for job in jobs:
        check_turns(job)
    for (_, end, token, _, _), (begin, _, next_token, _, _) in pairwise(spans):
        assert end <= begin, "two jobs had the device at once"
        assert token < next_token
    for *_, job, grant in spans:
        account = grant["account"]
        others = [pid for pid in account["pids"] if pid in known and pid != job.pid]
        assert not others, f"{job.name} has its turn, and {known[others[0]].name} is on the device"
        assert account["used"] <= account["own"] + OTHERS, f"more than {job.name} is on the device: {account}"
    return hand_offs(spans, rig.driven())


def check_turns(job: Job) -> None:
    """In each of its turns all its tensors were what they had been, and training went on."""
    for number, grant in enumerate(job.said("granted")):
        assert grant["changed"] == [], f"{job.name}, turn {number}: changed while it was off: {grant['changed']}"
        assert grant["new"] or grant["tensors"] > 0


def hand_offs(spans: Sequence[tuple[Any, ...]], driven: Iterable[Driven]) -> list[HandOff]:
    """The k-th change of jobs and what the driver did for it: one checkpoint, and all until the next one."""
    parts: list[dict[str, float]] = []
    lock = 0.0
    for one in driven:
        if one.call == "lock":
            lock = one.took
        elif one.call == "checkpoint":
            parts.append({"lock": lock, "checkpoint": one.took})
        elif parts and one.call in ("restore", "unlock"):
            parts[-1][one.call] = one.took
    changes = [
        begin - max(end, grant["asked"]) for (_, end, _, a, _), (begin, _, _, b, grant) in pairwise(spans) if a is not b
    ]
    assert len(parts) >= len(changes), "a job got its turn without the other's being saved"
    return [HandOff(total, part) for total, part in zip(changes, parts[-len(changes) :], strict=True)]


def show(title: str, found: Sequence[HandOff], jobs: Sequence[Job]) -> None:
    """Print what the device had in use, and the times of hand-offs: each, and medians of those that restored too."""
    for job in jobs:
        accounts = [one["account"] for one in job.said("granted")]
        own, used = (max(one[what] for one in accounts) / GIB for what in ("own", "used"))
        tensors = max(one["tensors"] for one in accounts) / GIB
        print(f"\n{job.name} on: {used:.2f} GiB of the device in use, {own:.2f} its own, {tensors:.2f} its tensors")
    print(f"\n{title}: seconds from yield to grant")
    for one in found:
        each = "  ".join(f"{name} {took:.3f}" for name, took in one.driver.items())
        print(f"  {one.total:7.3f} = {each}  coordination {one.coordination:.3f}")
    whole = [one for one in found if "restore" in one.driver]
    if whole:
        parts = {name: median(one.driver[name] for one in whole) for name in ("checkpoint", "restore")}
        print(
            f"  median {median(one.total for one in whole):.3f} = checkpoint {parts['checkpoint']:.3f} + restore "
            f"{parts['restore']:.3f} + coordination {median(one.coordination for one in whole):.3f} (with locks)"
        )


def agent_dies(rig: Rig, resident: Job, other: Job, failpoint: str) -> None:
    """The agent is killed in the middle of a COMMIT; another finishes it, and no byte is lost."""
    resident.do("turns 1")
    rig.restart_agent(f"{failpoint}=kill")
    grants = len(other.said("granted"))
    other.tell("turns 1")
    assert rig.agent.wait(WITHIN) == -9
    assert len(other.said("granted")) == grants
    rig.restart_agent()
    recovered(resident, other, grants)


def recovered(resident: Job, other: Job, grants: int) -> None:
    """The switch that was cut off has come to its end, and so has the way back."""
    grant = other.wait("granted", grants + 1)
    assert grant["restored"]
    resident.do("turns 1")
    assert resident.said("granted")[-1]["restored"]
    for job in (resident, other):
        check_turns(job)


def agent_dies_while_saving(rig: Rig, resident: Job, other: Job, size: int) -> None:
    """The agent is killed while the driver copies: the helper ends that call, and another agent does the rest."""
    resident.do("turns 1")
    before, grants = procfs.resident_bytes(resident.pid), len(other.said("granted"))
    other.tell("turns 1")
    limit = time.monotonic() + WITHIN
    while procfs.resident_bytes(resident.pid) < before + size // 4:
        assert time.monotonic() < limit, "nothing is being saved"
        time.sleep(0.02)  # the kernel tells nobody when a process grows
    rig.agent.kill()
    begun = [one.call for one in rig.driven()]
    rig.restart_agent()
    recovered(resident, other, grants)
    assert begun[-1] == "lock", "the agent saw the end of the call in which it was to be killed"


def holder_dies(rig: Rig, holder: Job, other: Job) -> float:
    """Its turn is taken from it and the next job is let on, all tensors as they were. Seconds that took."""
    holder.do("hold")
    before, grants = rig.eyes.seen[-1].revision, len(other.said("granted"))
    other.tell("turns 1")
    rig.eyes.wait_for(lambda one: _waits(one, other.name), WITHIN, after=before)
    at = time.monotonic()
    holder.child.kill()
    grant = other.wait("granted", grants + 1)
    assert grant["restored"]
    assert holder.child.exit_status == -9
    check_turns(other)
    account = grant["account"]
    assert account["used"] <= account["own"] + OTHERS
    return float(grant["granted"] - at)


def refuses(rig: Rig, other: Job, obstacle: Obstacle, why: str) -> str:
    """A job that cannot be moved keeps the devices, and is told why; the other keeps its place and is served after.

    Returns the reason.
    """
    name = "unmovable"
    client = rig.job(name, 0, kind="none")
    client.do("hold")
    with obstacle(rig, name):
        before, grants = rig.eyes.seen[-1].revision, len(other.said("granted"))
        other.tell("turns 1")
        waiting = rig.eyes.wait_for(lambda one: _waits(one, other.name), WITHIN, after=before)
        client.do("give")
        pinned = rig.eyes.wait_for(lambda one: _pinned(one) is not None, WITHIN, after=waiting.revision)
        reason = _pinned(pinned)
        assert reason is not None
        assert why in reason
        # It is served although the other was first, and what it has on the device works.
        client.do("hold")
        client.do("give")
        assert len(other.said("granted")) == grants
        place = [one for one in rig.eyes.seen if one.place.name == other.name and one.ticket is not None][-1]
        assert place.create == waiting.create, "the other has lost its place"
    other.wait("granted", grants + 1)
    check_turns(other)
    client.child.kill()
    return reason


def _waits(one: Seen, job: str) -> bool:
    return one.ticket is not None and one.place.name == job and one.ticket.state is TicketState.WAITING


def _pinned(one: Seen) -> str | None:
    if one.turn is None or one.place.group != GROUP or one.turn.pinned is None:
        return None
    return one.turn.pinned.reason if one.turn.phase is Phase.IDLE else None


def moves(rig: Rig, other: Job, processes: Obstacle) -> None:
    """A job of several processes goes off and comes back; the block's own end checks that they work."""
    client = rig.job("movable", 0, kind="none")
    client.do("hold")
    with processes(rig, "movable"):
        client.do("give")
        other.do("turns 1")
        client.do("hold")
        assert client.said("granted")[-1]["restored"]
    client.do("give")
    client.child.kill()
