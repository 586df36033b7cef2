# SPDX-License-Identifier: Apache-2.0
"""Is all well? What is asked of etcd and of the ledger in it, and what the answers mean.

`gather` asks, `examine` judges: pure, so that every complaint can be shown to come. Nothing is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from coordinator.decide.view import GroupView
from coordinator.picture import Picture
from ledger.codec import VERSION
from ledger.errors import LedgerError
from ledger.etcd import EtcdClient
from ledger.etcd.clock import Clock, boottime
from ledger.etcd.errors import EtcdError
from ledger.etcd.records import Alarm, Member, MemberStatus
from ledger.etcd_server import Fitness, judge, parse_version
from ledger.keys import Keys
from ledger.records import Phase
from ledger.view import Change, Changes

QUOTA_BYTES = 2 * 1024**3
"""What etcd's database may grow to unless it was told otherwise (``--quota-backend-bytes``)."""

_QUOTA_SHARE = 0.8
_SLOW_MS = 100.0
"""A hand-off is several transactions one after the other: above this each, etcd is what it waits for."""


class Level(Enum):
    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        about: what it is about, such as ``etcd 10.0.0.1:2379`` or ``group g``.
        said: one sentence.
        next_step: what to do about it; empty where all is well.
    """

    level: Level
    about: str
    said: str
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What was asked, and what was answered. An `EtcdError` stands for what could not be asked.

    Attributes:
        statuses: by endpoint, what its member says of itself.
        took_ms: for one linearizable read: a round of the majority.
        picture: the ledger under the prefix.
        quota_bytes: of the database; etcd does not tell it.
    """

    statuses: dict[str, MemberStatus | EtcdError]
    members: tuple[Member, ...] | EtcdError
    alarms: tuple[Alarm, ...] | EtcdError
    took_ms: float | EtcdError
    picture: Picture | EtcdError
    quota_bytes: int = QUOTA_BYTES


async def gather(
    client: EtcdClient,
    keys: Keys,
    endpoints: Sequence[str],
    *,
    quota_bytes: int = QUOTA_BYTES,
    clock: Clock = boottime,
) -> Facts:
    """Ask everything. Never raises `EtcdError`: not being answered is one of the facts."""

    async def status(endpoint: str) -> MemberStatus | EtcdError:
        try:
            return await client.status(endpoint)
        except EtcdError as error:
            return error

    async def members() -> tuple[Member, ...] | EtcdError:
        try:
            return await client.members()
        except EtcdError as error:
            return error

    async def alarms() -> tuple[Alarm, ...] | EtcdError:
        try:
            return await client.alarms()
        except EtcdError as error:
            return error

    async def ledger() -> Picture | EtcdError:
        try:
            listed = await client.get_prefix(keys.root)
        except EtcdError as error:
            return error
        picture = Picture(keys)
        picture.take(Changes(listed.revision, tuple(Change(kv.key, kv) for kv in listed.kvs)))
        return picture

    async def read() -> float | EtcdError:
        began = clock()
        try:
            await client.get(keys.compaction())
        except EtcdError as error:
            return error
        return (clock() - began) * 1000

    took, found = await asyncio.gather(read(), asyncio.gather(*(status(one) for one in endpoints)))
    statuses = dict(zip(endpoints, found, strict=True))
    if isinstance(took, EtcdError):  # nor would a majority answer the rest
        return Facts(statuses, took, took, took, took, quota_bytes)
    of_members, of_alarms, picture = await asyncio.gather(members(), alarms(), ledger())
    return Facts(statuses, of_members, of_alarms, took, picture, quota_bytes)


def examine(facts: Facts) -> tuple[Finding, ...]:
    """What the facts mean, in the order in which they should be read."""
    found = [*_endpoints(facts), *_cluster(facts)]
    if isinstance(facts.took_ms, EtcdError):
        return tuple(found)  # of the rest nothing is known
    if isinstance(facts.picture, EtcdError):
        return (*found, Finding(Level.BAD, "ledger", f"It cannot be read: {facts.picture.cause}.", "See etcd above."))
    return (*found, *_replicas(facts.picture), *_nodes(facts.picture), *_groups(facts.picture))


# ---------------------------------------------------------------------------------------------------- etcd


def _endpoints(facts: Facts) -> Iterator[Finding]:
    all_gone = all(isinstance(one, EtcdError) for one in facts.statuses.values())
    for endpoint, status in facts.statuses.items():
        about = f"etcd {endpoint}"
        if isinstance(status, EtcdError):
            level = Level.BAD if all_gone else Level.WARNING
            step = "Start it, or correct --etcd and its TLS files."
            yield Finding(level, about, f"It does not answer: {status.cause}.", step)
            continue
        yield _version(about, status.version)
        if not status.leader:
            yield Finding(Level.BAD, about, "It sees no leader.", "Bring back a majority of the members.")
        for complaint in status.errors:
            yield Finding(Level.WARNING, about, f"It complains: {complaint}.", "See etcd's log.")
        yield _size(about, status, facts.quota_bytes)


def _version(about: str, text: str) -> Finding:
    version = parse_version(text)
    if version is None:
        return Finding(Level.WARNING, about, f"Its version, {text!r}, cannot be read.", "Use a released etcd.")
    verdict = judge(version)
    said = f"etcd {version}: {verdict.reason}."
    match verdict.fitness:
        case Fitness.FORBIDDEN:
            return Finding(Level.BAD, about, said, "Upgrade etcd.")
        case Fitness.DEVELOPMENT:
            return Finding(Level.WARNING, about, said, "Good enough for development; upgrade it for production.")
        case Fitness.PRODUCTION:
            return Finding(Level.OK, about, said)


def _size(about: str, status: MemberStatus, quota: int) -> Finding:
    said = f"Its database has {_mib(status.db_size)}, {_mib(status.db_size_in_use)} in use, of {_mib(quota)} allowed."
    if status.db_size < quota * _QUOTA_SHARE:
        return Finding(Level.OK, about, said)
    if status.db_size_in_use < status.db_size / 2:
        return Finding(Level.WARNING, about, said, "Give the free space back: `etcdctl defrag`, one member at a time.")
    step = "Find out what fills it (`etcdctl get --prefix --keys-only`), or raise --quota-backend-bytes."
    return Finding(Level.WARNING, about, said, step)


def _mib(size: int) -> str:
    return f"{size / 1024**2:,.1f} MiB"


def _cluster(facts: Facts) -> Iterator[Finding]:
    about = "etcd cluster"
    clusters = {one.header.cluster_id for one in facts.statuses.values() if isinstance(one, MemberStatus)}
    if len(clusters) > 1:
        said = f"The endpoints belong to {len(clusters)} clusters."
        yield Finding(Level.BAD, about, said, "Name the members of one cluster in --etcd, here and everywhere.")
    match facts.took_ms:
        case EtcdError() as error:
            yield Finding(
                Level.BAD, about, f"No majority answers: {error.cause}.", "Bring back a majority of the members."
            )
            return
        case took if took > _SLOW_MS:
            said, step = f"A read of the majority took {took:.0f} ms.", "Give etcd faster disks, or a nearer place."
            yield Finding(Level.WARNING, about, said, step)
        case took:
            yield Finding(Level.OK, about, f"A majority answers, in {took:.1f} ms.")
    if not isinstance(facts.members, EtcdError):
        voting = [member for member in facts.members if not member.is_learner]
        said = f"{len(voting)} voting {'member' if len(voting) == 1 else 'members'}."
        if len(voting) < 3 or len(voting) % 2 == 0:
            yield Finding(Level.WARNING, about, said, "Run 3 or 5, so that one may fail.")
        else:
            yield Finding(Level.OK, about, said)
    match facts.alarms:
        case EtcdError() as error:
            yield Finding(Level.BAD, about, f"Its alarms cannot be read: {error.cause}.", "See above.")
        case ():
            yield Finding(Level.OK, about, "No alarms.")
        case alarms:
            for alarm in alarms:
                said = f"Member {alarm.member_id:x} raised the alarm {alarm.type.name}."
                step = "Make room (compact, defrag), then `etcdctl alarm disarm`; CORRUPT: replace that member."
                yield Finding(Level.BAD, about, said, step)


# ---------------------------------------------------------------------------------------------------- the ledger


def _replicas(picture: Picture) -> Iterator[Finding]:
    replicas = picture.replicas()
    if not replicas:
        yield Finding(Level.BAD, "coordinators", "None is registered.", "Start one with `timeslice coordinator`.")
    for name, kept in sorted(replicas.items()):
        one = kept.value
        said = (
            f"It serves on {one.address}, release {one.release or 'unknown'}, records of version {one.record_version}."
        )
        if one.record_version == VERSION:
            yield Finding(Level.OK, f"coordinator {name}", said)
        else:
            yield Finding(Level.WARNING, f"coordinator {name}", said, f"Run one release everywhere; this is {VERSION}.")
    if (error := picture.compaction_error()) is not None:
        yield _unreadable("compaction", error)
    elif replicas and picture.compaction() is None:
        step = "Leave --history-seconds of a coordinator on, unless etcd compacts by itself."
        yield Finding(Level.WARNING, "coordinators", "None of them compacts etcd's history.", step)


def _nodes(picture: Picture) -> Iterator[Finding]:
    for node, agent in picture.nodes().items():
        about = f"node {node}"
        if agent is None:
            yield Finding(Level.WARNING, about, "Its agent is away.", "Start it there with `timeslice agent`.")
        elif unready := [one for one in agent.value.capabilities if "not ready" in one]:
            yield Finding(Level.WARNING, about, f"{unready[0]}.", "Put that right on the node, then restart its agent.")
        else:
            yield Finding(Level.OK, about, f"Its agent is there, with {len(agent.value.devices)} devices.")
        if (drain := picture.drain(node)) is not None:
            said = f"It is being drained: {drain.value.why or 'no reason given'}."
            yield Finding(Level.WARNING, about, said, f"When it is done: `timeslice drain-node {node} --undo`.")
    yield from _shared_devices(picture)


def _shared_devices(picture: Picture) -> Iterator[Finding]:
    """Agents with a state folder each do not see each other's locks, and claims are by the node's name."""
    for (_, device_name), nodes in picture.servers().items():
        if len(nodes) > 1:
            said = f"Device {device_name} of one machine is served by the agents of {' and '.join(nodes)}."
            step = "End all but one of them: two groups could have the device at once."
            yield Finding(Level.BAD, "nodes", said, step)


def _groups(picture: Picture) -> Iterator[Finding]:
    for group in picture.group_names():
        about = f"group {group}"
        if (error := picture.group_error(group)) is not None:
            yield _unreadable(about, error)
            continue
        view = picture.group(group)
        complaints = list(_complaints(view)) if view is not None else []
        for said, step in complaints:
            yield Finding(Level.WARNING, about, said, step)
        if not complaints:
            yield Finding(Level.OK, about, "Nothing is in its way.")


def _complaints(view: GroupView) -> Iterator[tuple[str, str]]:
    if view.turn is None or view.spec is None:
        return
    turn = view.turn.value
    if turn.blocked is not None and turn.phase in (Phase.IDLE, Phase.RELEASING):
        yield f"Blocked by {turn.blocked.node}: {turn.blocked.reason}.", "It goes on by itself once that is put right."
    if turn.pinned is not None:
        step = f"End the job, or `timeslice evict {view.name} {turn.pinned.job}`, which kills it."
        yield f"{turn.pinned.job} is pinned: {turn.pinned.reason}.", step
    if turn.paused:
        yield "It is paused.", f"`timeslice resume {view.name}`"
    out = [one.node for one in view.spec.value.nodes if one.node not in turn.nodes]
    if out and turn.generation == view.spec.mod:
        yield f"It goes on without {', '.join(out)}, whose agent stayed away.", "Start the agent there."
    for job in sorted(view.jobs):
        if (why := view.quarantined(job)) is not None:
            yield f"{job} is quarantined: {why}.", f"Look into it, then `timeslice unquarantine {view.name} {job}`."


def _unreadable(about: str, error: LedgerError) -> Finding:
    return Finding(Level.BAD, about, str(error).removesuffix(error.next_step).rstrip(), error.next_step)
