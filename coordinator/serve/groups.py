# SPDX-License-Identifier: Apache-2.0
"""Making, changing and deleting groups: the wish of an operator, written under guards that another replica's write
breaks. What follows from a wish is decided by `coordinator.decide.spec`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from coordinator.apply.engine import Engine
from coordinator.apply.errors import Conflict
from coordinator.decide import GroupView, NodeState
from coordinator.decide.commands import Refusal
from coordinator.decide.numbers import new_turn
from coordinator.decide.spec import AT_ONCE, left_by_deletion
from coordinator.picture import Picture
from coordinator.serve import validate
from coordinator.serve.sessions import WITHIN
from ledger.codec import decode, encode
from ledger.etcd import KeyValue, RangeResult
from ledger.etcd.txn import Compare, Get, Op, Put, absent, modified_at
from ledger.kept import Kept
from ledger.keys import Keys
from ledger.records import Claim, GroupSpec, Turn

R = TypeVar("R")

Device = tuple[str, str]
"""A node and one of its devices."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """What etcd has of a group, read at one revision: numbers of a new turn must be above all that went before."""

    revision: int
    spec: Kept[GroupSpec] | None
    turn: Kept[Turn] | None
    free: tuple[Device, ...]  # the wanted devices that nobody has


async def put_group(engine: Engine, name: str, spec: GroupSpec) -> int:
    """Make a group, or change its wish; with it the devices are claimed. Returns the revision.

    Up to 100 devices go with the wish in one transaction, the rest follows. Where another group takes one of those in
    between, a new group is marked as being deleted, and an older one gets its former wish back.

    Raises:
        Refusal: NO_SUCH_DEVICE, DEVICE_CLAIMED, GROUP_DELETING.
        Conflict: others changed the group again and again.
        EtcdError: etcd did not carry it out.
        LedgerError: the group's record cannot be read: it is not overwritten.
    """
    _reported(engine.picture, spec)
    _served_once(engine.picture, spec)
    error = engine.picture.group_error(name)
    if error is not None:
        raise error
    wanted = [(node.node, device) for node in spec.nodes for device in node.devices]
    deadline = engine.clock() + WITHIN
    while engine.clock() < deadline:
        stored = await _read(engine, name, wanted)
        if stored.spec is not None and stored.spec.value.deleting:
            raise Refusal("GROUP_DELETING", f"Group {name} is being deleted.", {"group": name})
        if stored.spec is not None and stored.spec.value == spec and not stored.free:
            return stored.revision  # so that a call can be repeated, and moves nothing
        compares, ops = _write(engine, name, spec, stored)
        done = await engine.client.txn(compares, ops)
        if not done.succeeded:
            continue
        try:
            await _claim_rest(engine, name, stored.free[AT_ONCE:], done.revision)
        except Refusal:
            await _take_back(engine, name, stored.spec, done.revision)
            raise
        return done.revision
    raise Conflict(f"Others changed group {name}, or its devices, again and again.")


async def delete_group(engine: Engine, name: str, *, force: bool) -> int:
    """Mark a group as being deleted. Returns the revision.

    Raises:
        Refusal: NO_SUCH_GROUP; JOBS_PARKED without ``force``.
        Conflict, EtcdError, LedgerError: as `put_group`.
    """
    deadline = engine.clock() + WITHIN
    while engine.clock() < deadline:
        stored = await _read(engine, name, ())
        if stored.spec is None:
            raise Refusal("NO_SUCH_GROUP", f"There is no group {name}.", {"group": name})
        spec = stored.spec.value
        await engine.view.reached(stored.revision, WITHIN)
        view = engine.picture.group(name)
        left = left_by_deletion(view, view.turn.value) if view and view.turn else ()
        if left and not force:
            jobs = ", ".join(left)
            raise Refusal("JOBS_PARKED", f"Group {name} has state of {jobs}.", {"group": name, "jobs": jobs})
        if spec.deleting and (spec.force or not force):
            return stored.revision
        marked = replace(spec, deleting=True, force=spec.force or force)
        put = Put(engine.keys.spec(name), encode(marked))
        done = await engine.client.txn([modified_at(put.key, stored.spec.mod)], [put])
        if done.succeeded:
            return done.revision
    raise Conflict(f"Others changed group {name} again and again.")


def _reported(picture: Picture, spec: GroupSpec) -> None:
    """Refuse a device that its node's agent, where that is known, does not report."""
    agents = picture.nodes()
    for node in spec.nodes:
        agent = agents.get(node.node)
        if agent is None:
            continue
        known = {device.uuid for device in agent.value.devices}
        for device in node.devices:
            if device not in known:
                about = {"node": node.node, "device": device}
                raise Refusal("NO_SUCH_DEVICE", f"The agent of {node.node} reports no device {device}.", about)


def _served_once(picture: Picture, spec: GroupSpec) -> None:
    """Refuse a device that a group has by the name of another node of the same machine.

    Claims are by the nodes' names, and two agents with a state folder each do not see each other's locks.
    """
    agents, servers = picture.nodes(), picture.servers()
    for node, uuid in ((one.node, device) for one in spec.nodes for device in one.devices):
        agent = agents.get(node)
        for other in servers.get((agent.value.boot_id, uuid), ()) if agent is not None else ():
            if other != node and uuid in picture.claims(other):
                about = {"node": node, "device": uuid, "other": other}
                message = f"Device {uuid} of {node} is that of {other}, which is taken: two agents serve one machine."
                raise Refusal("DEVICE_CLAIMED", message, about)


async def _read(engine: Engine, name: str, wanted: Sequence[Device]) -> _Stored:
    keys = engine.keys
    gets = [Get(keys.spec(name)), Get(keys.turn(name)), *(Get(keys.claim(*one)) for one in wanted)]
    result = await engine.client.txn([], gets)
    found = [one.kvs[0] if isinstance(one, RangeResult) and one.kvs else None for one in result.responses]
    free: list[Device] = []
    for (node, device), claim in zip(wanted, found[2:], strict=True):
        if claim is None:
            free.append((node, device))
        elif (owner := decode(Claim, claim.value).group) != name:
            about = {"node": node, "device": device, "group": owner}
            raise Refusal("DEVICE_CLAIMED", f"Device {device} of {node} belongs to group {owner}.", about)
    spec, turn = found[0], found[1]
    return _Stored(
        result.revision,
        _kept(name, spec, decode(GroupSpec, spec.value)) if spec is not None else None,
        _kept(name, turn, decode(Turn, turn.value)) if turn is not None else None,
        tuple(free),
    )


def _kept(name: str, kv: KeyValue, value: R) -> Kept[R]:
    return Kept(name, value, kv.create_revision, kv.mod_revision)


def _write(engine: Engine, name: str, spec: GroupSpec, stored: _Stored) -> tuple[list[Compare], list[Op]]:
    keys = engine.keys
    value = encode(spec)
    validate.within_size(f"The spec of group {name}", value)
    spec_key, turn_key = keys.spec(name), keys.turn(name)
    compares = [modified_at(spec_key, stored.spec.mod if stored.spec else 0)]
    ops: list[Op] = [Put(spec_key, value)]
    if stored.turn is None:
        compares.append(absent(turn_key))
        ops.append(Put(turn_key, encode(_first_turn(engine.picture, name, spec, stored.revision))))
    more_compares, more_ops = _claims(keys, name, stored.free[:AT_ONCE])
    return compares + more_compares, ops + more_ops


def _first_turn(picture: Picture, name: str, spec: GroupSpec, revision: int) -> Turn:
    """The spec's own revision is not known before it is written: generation 0 has it adopted at the next step."""
    agents = picture.nodes()
    nodes = {one.node: NodeState(agent=agents.get(one.node)) for one in spec.nodes}
    return new_turn(GroupView(name, revision, spec=Kept(name, spec, 0, 0), nodes=nodes))


def _claims(keys: Keys, name: str, devices: Sequence[Device]) -> tuple[list[Compare], list[Op]]:
    value = encode(Claim(group=name))
    claims = [keys.claim(node, device) for node, device in devices]
    return [absent(claim) for claim in claims], [Put(claim, value) for claim in claims]


async def _claim_rest(engine: Engine, name: str, rest: Sequence[Device], spec_mod: int) -> None:
    """Claim what did not fit into the first transaction. Any replica does the same for the wish, and may be first."""
    deadline = engine.clock() + WITHIN
    while rest:
        if engine.clock() > deadline:
            raise Conflict(f"Others changed the devices of group {name} again and again.")
        compares, ops = _claims(engine.keys, name, rest[:AT_ONCE])
        compares.append(modified_at(engine.keys.spec(name), spec_mod))
        done = await engine.client.txn(compares, ops)
        if done.succeeded:
            rest = rest[AT_ONCE:]
            continue
        stored = await _read(engine, name, rest)
        if stored.spec is None or stored.spec.mod != spec_mod:
            return  # the wish has been changed since: its devices are its writer's business
        rest = stored.free


async def _take_back(engine: Engine, name: str, former: Kept[GroupSpec] | None, spec_mod: int) -> None:
    """Another group has got one of the devices: the wish cannot come true."""
    key = engine.keys.spec(name)
    kv = await engine.client.get(key)
    if kv is None or kv.mod_revision != spec_mod:
        return
    wish = former.value if former is not None else replace(decode(GroupSpec, kv.value), deleting=True)
    await engine.client.txn([modified_at(key, spec_mod)], [Put(key, encode(wish))])
