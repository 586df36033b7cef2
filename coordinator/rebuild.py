# SPDX-License-Identifier: Apache-2.0
"""A group with a record that cannot be read: rebuilt from what its agents have said (protocol rule 32).

Nobody writes to such a group, so this may be done while replicas run: everything is one transaction, which compares
each unreadable record with what was read. What is rebuilt claims nothing: the resident is unknown, so that a switch
finds out who is on; a grant is over; epoch and token are above all that anybody has seen. Records of a newer version
are left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from coordinator.apply.transaction import Transaction
from coordinator.decide.switch import unknown
from ledger.codec import encode
from ledger.errors import LedgerError, RecordTooNew
from ledger.etcd import EtcdClient, KeyValue, RangeResult
from ledger.etcd.txn import Compare, Delete, Op, Put, absent, created_at, modified_at
from ledger.index import Index
from ledger.keys import Keys, Kind, Place, check_name
from ledger.records import (
    Claim,
    Drain,
    GroupSpec,
    Health,
    Job,
    JobProcesses,
    NodeDevices,
    Phase,
    Process,
    Processes,
    ProcessRecord,
    Resident,
    ResidentKind,
    TicketState,
    Turn,
)

BESIDE_THE_TURN = frozenset({Kind.TICKET, Kind.JOB, Kind.REGISTERED, Kind.DRAIN, Kind.AGENT})
"""Records without which the turn is still what it says."""

_WHY = "its record could not be read and was rebuilt"


class NothingToRebuild(LedgerError):
    """All records of the group can be read, or there is no such group."""

    reason = "BAD_REQUEST"
    next_step = "See `timeslice get groups`; after a restore of etcd run `timeslice repair --restored`."

    def __init__(self, group: str) -> None:
        super().__init__(f"Group {group} has no record that cannot be read.")


class CannotRebuild(LedgerError):
    """What the record said can be learnt from nobody else."""

    reason = "RECORD_MALFORMED"

    def __init__(self, key: bytes, why: str, next_step: str) -> None:
        super().__init__(f"{key.decode(errors='replace')} cannot be rebuilt: {why}.")
        self.next_step = next_step


class GroupChanged(LedgerError):
    """Somebody wrote to the group while it was being rebuilt."""

    reason = "CONFLICT"
    next_step = "Run it again."

    def __init__(self, group: str) -> None:
        super().__init__(f"Group {group} was changed while it was being rebuilt.")


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The one transaction, and a sentence for each thing that it does."""

    transaction: Transaction
    said: tuple[str, ...]


async def rebuild_group(client: EtcdClient, keys: Keys, group: str, *, dry_run: bool = False) -> tuple[str, ...]:
    """Rebuild what cannot be read of ``group``. Returns a sentence for each thing done.

    Raises:
        NothingToRebuild, CannotRebuild, RecordTooNew, GroupChanged, BadName: nothing was changed.
        EtcdError: etcd did not do it.
    """
    check_name("group", group)
    rebuilt = rebuild(await client.get_prefix(keys.root), keys, group)
    if not dry_run:
        txn = rebuilt.transaction
        if not (await client.txn(txn.compares, txn.ops)).succeeded:
            raise GroupChanged(group)
    return rebuilt.said


def rebuild(listed: RangeResult, keys: Keys, group: str) -> Rebuilt:
    """What is to be written for ``group``, by all that etcd holds. Pure; raises as `rebuild_group`."""
    known = _Known.of(listed, keys, group)
    bad = list(known.unreadable())
    if not bad:
        raise NothingToRebuild(group)
    for _, _, error in bad:
        if isinstance(error, RecordTooNew):
            raise error
    compares: list[Compare] = [modified_at(kv.key, kv.mod_revision) for kv, _, _ in bad]
    ops: list[Op] = []
    said: list[str] = []
    for kv, place, _ in bad:
        op, sentence = known.anew(kv, place)
        if op is not None:
            ops.append(op)
        said.append(sentence)
    if any(place.kind not in BESIDE_THE_TURN for _, place, _ in bad):
        _turn(known, compares, ops, said)
    return Rebuilt(Transaction(tuple(compares), tuple(ops)), tuple(said))


def _turn(known: _Known, compares: list[Compare], ops: list[Op], said: list[str]) -> None:
    key = known.keys.turn(known.group)
    kept = known.index.turns.get(known.group)
    if kept is not None:
        compares.append(modified_at(key, kept.mod))
    elif not any(compare.key == key for compare in compares):
        compares.append(absent(key))
    turn = known.turn()
    ops.append(Put(key, encode(turn)))
    said.append(f"The turn is rebuilt: epoch {turn.epoch}, nobody can say who is on; a switch will show.")
    for ticket in known.index.queue(known.group).in_order():
        if ticket.value.state is TicketState.GRANTED:
            ticket_key = known.keys.ticket(known.group, ticket.name)
            compares.append(created_at(ticket_key, ticket.create))
            ops.append(Delete(ticket_key))
            said.append(f"The grant of {ticket.name} is over.")


@dataclass(frozen=True, slots=True)
class _Known:
    """All that etcd holds, as far as it can be read, and which of it is this group's."""

    keys: Keys
    group: str
    revision: int
    index: Index
    listed: tuple[tuple[KeyValue, Place], ...]

    @classmethod
    def of(cls, listed: RangeResult, keys: Keys, group: str) -> _Known:
        index = Index(keys)
        for kv in listed.kvs:
            index.put(kv)
        places = ((kv, keys.place(kv.key)) for kv in listed.kvs)
        return cls(keys, group, listed.revision, index, tuple((kv, place) for kv, place in places if place))

    def unreadable(self) -> Iterator[tuple[KeyValue, Place, LedgerError]]:
        errors = dict(self.index.errors())
        nodes, devices = self.nodes(), self.devices()
        for kv, place in self.listed:
            ours = place.group == self.group
            ours = ours or (place.kind in (Kind.AGENT, Kind.DRAIN) and place.node in nodes)
            ours = ours or (place.kind is Kind.CLAIM and (place.node, place.name) in devices)
            if ours and place in errors:
                yield kv, place, errors[place]

    def devices(self) -> frozenset[tuple[str, str]]:
        """What the spec names, and what the group has been using."""
        spec = self.index.specs.get(self.group)
        wanted = {(one.node, device) for one in spec.value.nodes for device in one.devices} if spec else set()
        for node, directives in self.index.directives.items():
            if (directive := directives.get(self.group)) is not None:
                wanted |= {(node, device) for device in directive.value.devices}
        return frozenset(wanted | self.claimed())

    def claimed(self) -> frozenset[tuple[str, str]]:
        return frozenset(
            (node, device)
            for node, claims in self.index.claims.items()
            for device, claim in claims.items()
            if claim.value.group == self.group
        )

    def told(self) -> frozenset[str]:
        """The nodes that were told or have said anything for this group, readable or not."""
        kinds = (Kind.DIRECTIVE, Kind.ACK, Kind.PROCESSES)
        return frozenset(p.node for _, p in self.listed if p.group == self.group and p.kind in kinds)

    def nodes(self) -> frozenset[str]:
        turn = self.index.turns.get(self.group)
        found = self.told() | {node for node, _ in self.devices()}
        return found | frozenset(turn.value.nodes) if turn else found

    def anew(self, kv: KeyValue, place: Place) -> tuple[Op | None, str]:
        """What takes the place of an unreadable record, and a sentence on it."""
        match place.kind:
            case Kind.TURN:
                return None, "The turn could not be read."
            case Kind.SPEC:
                spec = self.spec(kv.key)
                return Put(kv.key, encode(spec)), "The spec is rebuilt from the claims, with the default policy."
            case Kind.TICKET:
                return Delete(kv.key), f"The ticket of {place.name} is deleted: it loses its place."
            case Kind.JOB:
                job = Job(health=Health.QUARANTINED, why=_WHY)
                return Put(kv.key, encode(job)), f"{place.name} is quarantined: whether it was is not known."
            case Kind.PROCESSES:
                said = (
                    f"The processes on {place.node} are those that its agent has answered for or a client registered."
                )
                return Put(kv.key, encode(self.processes(place.node))), said
            case Kind.DIRECTIVE | Kind.ACK:
                return Delete(kv.key), f"The {place.kind.value} of {place.node} is deleted."
            case Kind.REGISTERED:
                return Delete(kv.key), f"What a client registered of {place.name} on {place.node} is deleted."
            case Kind.CLAIM:
                return self.claim(kv.key, place), f"Device {place.name} of {place.node} is the group's again."
            case Kind.DRAIN:
                return Put(kv.key, encode(Drain(why=_WHY))), f"{place.node} counts as being drained."
            case Kind.AGENT if not kv.lease:
                # Who wrote it by hand took it off its agent's lease: it would stand in the agent's way for ever.
                return Delete(kv.key), f"The registration of {place.node} is deleted: its agent registers anew."
            case _:
                step = f"Restart the agent of {place.node}: it registers anew."
                raise CannotRebuild(kv.key, "only its agent knows what it says", step)

    def spec(self, key: bytes) -> GroupSpec:
        nodes: defaultdict[str, list[str]] = defaultdict(list)
        for node, device in sorted(self.claimed()):
            nodes[node].append(device)
        if not nodes:
            step = f"Delete it with `etcdctl del`, then make the group anew with `timeslice group put {self.group}`."
            raise CannotRebuild(key, "no claim says which devices the group has", step)
        return GroupSpec(nodes=tuple(NodeDevices(node, tuple(devices)) for node, devices in nodes.items()))

    def claim(self, key: bytes, place: Place) -> Op:
        for name, spec in self.index.specs.items():
            devices = {(one.node, device) for one in spec.value.nodes for device in one.devices}
            if name != self.group and (place.node, place.name) in devices:
                step = f"Take the device out of one of the groups {self.group} and {name}, and run it again."
                raise CannotRebuild(key, f"group {name} names the device too", step)
        return Put(key, encode(Claim(group=self.group)))

    def processes(self, node: str) -> Processes:
        found: defaultdict[str, dict[Process, ProcessRecord]] = defaultdict(dict)
        for (group, job), registered in self.index.registered.get(node, {}).items():
            if group == self.group:
                found[job].update({one: ProcessRecord(one) for one in registered.value.processes})
        ack = self.index.acks.get(node, {}).get(self.group)
        for one in ack.value.evidence if ack else ():
            if one.process is not None:
                found[one.job][one.process] = ProcessRecord(one.process, one.state, one.bytes)
        return Processes(jobs=tuple(JobProcesses(job, tuple(one.values())) for job, one in sorted(found.items())))

    def turn(self) -> Turn:
        """IDLE, above everything. No spec is in force: the wish is adopted next, its devices claimed."""
        kept = self.index.turns.get(self.group)
        before = kept.value if kept else Turn(resident=Resident(ResidentKind.UNKNOWN))
        tokens = [one.value.token for one in self.index.queue(self.group).in_order()]
        return replace(
            before,
            phase=Phase.IDLE,
            epoch=max(self.revision, before.epoch + 1, self.highest_epoch() + 1),
            token=max(self.revision, before.token + 1, *(token + 1 for token in tokens), 0),
            holder=None,
            incoming=None,
            resident=unknown(before),
            nodes=tuple(sorted(self.nodes())),
            leaving=(),
            generation=0,
            attempt=0,
            blocked=None,
            kill=False,
        )

    def highest_epoch(self) -> int:
        """The highest epoch that anybody was told or has seen."""
        group, index = self.group, self.index
        seen = [kept.value.highest_epoch(group) for kept in index.agents.values()]
        seen += [one[group].value.epoch for one in index.directives.values() if group in one]
        for one in index.acks.values():
            if group in one:
                seen += [one[group].value.epoch, one[group].value.highest_epoch]
        return max(seen, default=0)
