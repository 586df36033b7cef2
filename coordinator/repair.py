# SPDX-License-Identifier: Apache-2.0
"""After etcd was restored from a snapshot: make sure that nothing which was true then passes for true now.

A restored store shows tickets that have been given back since, grants that are over and residents that have changed;
its leases live, and their clients' keepalives are confirmed. So before any replica starts, each group's resident
becomes UNKNOWN, and a granted ticket goes. Switches find out by themselves what is on the devices (protocol rule 10).
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from coordinator.apply.transaction import transaction
from coordinator.decide import Decision, GroupView, Remove
from coordinator.decide.held import lost_turn
from coordinator.decide.numbers import next_epoch, next_token
from coordinator.decide.switch import unknown
from coordinator.picture import Picture
from ledger.errors import LedgerError
from ledger.etcd import EtcdClient
from ledger.keys import Keys
from ledger.records import Phase
from ledger.view import Change, Changes


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was done to one group: one sentence."""

    group: str
    what: str


@dataclass(frozen=True, slots=True)
class Restoration:
    """All that was done.

    Attributes:
        repaired: the groups that have been put right.
        unreadable: why others were left as they are; they stand still until each is rebuilt by itself.
    """

    repaired: tuple[Repaired, ...]
    unreadable: tuple[LedgerError, ...]


class ReplicasRunning(LedgerError):
    """A repair while replicas run: they would decide on what is about to be changed."""

    reason = "BAD_REQUEST"

    def __init__(self, replicas: tuple[str, ...]) -> None:
        super().__init__(f"Replicas are running: {', '.join(replicas)}.")
        self.replicas = replicas
        self.next_step = "Stop them all, wait until their registrations have ended (10 s), then repair."


class LostRace(LedgerError):
    """Somebody wrote to a group while it was being repaired."""

    reason = "CONFLICT"

    def __init__(self, group: str) -> None:
        super().__init__(f"Group {group} was changed while it was being repaired.")
        self.next_step = "Make sure that no replica runs, and repair again."


def restored(view: GroupView) -> Decision | None:
    """The one transaction that a group needs after a restore of etcd; None for a group that has no turn."""
    if view.turn is None:
        return None
    turn = view.turn.value
    if turn.phase is Phase.HELD:
        turn = lost_turn(turn)
    after = replace(
        turn,
        phase=Phase.IDLE,
        epoch=next_epoch(view, turn),
        token=next_token(view, turn),
        holder=None,
        incoming=None,
        resident=unknown(turn),
        blocked=None,
        attempt=0,
        kill=False,
    )
    granted = tuple(Remove(one.name, one.create) for one in view.tickets.granted)
    said = f", and the grant of {granted[0].job} is deleted" if granted else ""
    return Decision(f"nobody can say who is on{said}", after, granted)


async def repair_restored(client: EtcdClient, keys: Keys) -> Restoration:
    """Carry out `restored` for every group that can be read.

    Raises:
        ReplicasRunning: nothing was changed.
        LostRace: the groups before it are repaired.
        EtcdError: etcd did not do it.
    """
    listed = await client.get_prefix(keys.root)
    picture = Picture(keys)
    picture.take(Changes(listed.revision, tuple(Change(kv.key, kv) for kv in listed.kvs)))
    if running := tuple(sorted(picture.replicas())):
        raise ReplicasRunning(running)
    done: list[Repaired] = []
    unreadable: list[LedgerError] = []
    for group in picture.group_names():
        if (error := picture.group_error(group)) is not None:
            unreadable.append(error)
            continue
        view = picture.group(group)
        decision = restored(view) if view else None
        if view is None or decision is None:
            continue
        txn = transaction(keys, view, decision)
        if not (await client.txn(txn.compares, txn.ops)).succeeded:
            raise LostRace(group)
        done.append(Repaired(group, decision.why))
    return Restoration(tuple(done), tuple(unreadable))
