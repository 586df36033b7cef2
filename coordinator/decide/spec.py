# SPDX-License-Identifier: Apache-2.0
"""A group's wish becoming its state: a new spec adopted, or the group removed (protocol rules 4, 11 and 27)."""

from __future__ import annotations

from itertools import islice

from msgspec.structs import replace

from coordinator.decide.decision import Decision, Verdict
from coordinator.decide.drop import dropped, uncleared
from coordinator.decide.switch import refuse_deleting, resident_of, unknown
from coordinator.decide.view import GroupView
from ledger.kept import Kept
from ledger.records import GroupSpec, ResidentKind, Turn

AT_ONCE = 100
"""How many claims or tickets one transaction takes."""


def claims_missing(view: GroupView, spec: Kept[GroupSpec]) -> Verdict | None:
    """Claim what the spec names and the group has not; None if it has all. Nobody is served on another's device."""
    free: list[tuple[str, str]] = []
    for one in spec.value.nodes:
        for device in one.devices:
            claim = view.node(one.node).claims.get(device)
            if claim is None:
                free.append((one.node, device))
            elif claim.value.group != view.name:
                note = f"The spec waits: {device} of {one.node} belongs to group {claim.value.group}."
                return Verdict(note=note)
    if not free:
        return None
    return Verdict(Decision("Devices of the spec are claimed.", claim=tuple(free[:AT_ONCE]), spec_mod=spec.mod))


def surplus_claims(view: GroupView, turn: Turn, spec: GroupSpec) -> tuple[tuple[str, str], ...]:
    """Claims on devices that the group, with this spec in force, does not have any more.

    Not those of a node that has yet to be cleared: another group would be served beside what is locked there.
    """
    wanted = {(one.node, device) for one in spec.nodes for device in one.devices}
    mine = sorted(view.nodes.keys() - uncleared(view, turn))
    have = [(node, device) for node in mine for device in view.claimed(node)]
    return tuple(claim for claim in have if claim not in wanted)[:AT_ONCE]


def respecified(view: GroupView, turn: Turn, spec: Kept[GroupSpec]) -> Verdict:
    """Claim the new devices, then adopt the spec; or a note on why it waits: the group goes on as it is in force."""
    names = {one.node for one in spec.value.nodes}
    leaving = tuple(node for node in turn.nodes if node not in names)
    forgotten = tuple(node for node in dropped(view, turn) if node not in names)  # once they are cleared
    parked = view.parked_on(leaving + forgotten)
    if parked and not spec.value.force:
        return Verdict(note=f"The new spec waits: {', '.join(parked)} would leave state behind; --force adopts it.")
    unclaimed = claims_missing(view, spec)
    if unclaimed is not None:
        return unclaimed
    after = replace(
        turn,
        resident=unknown(turn),
        nodes=tuple(sorted(names | set(turn.nodes))),
        leaving=leaving,
        generation=spec.mod,
        attempt=0,
        blocked=None,
        pinned=None,
    )
    why = "The new spec is adopted; a switch will show who is on."
    return Verdict(Decision(why, after, spec_mod=spec.mod))


def deleted(view: GroupView, turn: Turn) -> Verdict:
    """Refuse who waits; when nobody is in the queue any more the group goes."""
    if refusals := tuple(refuse_deleting(view, one) for one in islice(view.waiting(), AT_ONCE)):
        return Verdict(Decision("The group is being deleted: its waiters are refused.", turn, refusals))
    if view.tickets:
        return Verdict(note="The group is being deleted: refused tickets have yet to be taken back.")
    left = left_by_deletion(view, turn)
    forced = view.spec is not None and view.spec.value.force
    if left and not forced:
        return Verdict(note=f"The deletion waits: {', '.join(left)} would leave state behind.")
    if nodes := uncleared(view, turn, at_it=forced):
        why = "has yet to clear its devices, where a job may be locked"
        force = "." if forced else "; --force deletes the group without it."
        return Verdict(note=f"The deletion waits: {', '.join(nodes)} {why}{force}")
    claims = tuple((node, device) for node in sorted(view.nodes) for device in view.claimed(node))
    if len(claims) > AT_ONCE:
        return Verdict(Decision("Claims of a group that is being deleted.", unclaim=claims[:AT_ONCE]))
    return Verdict(
        Decision(
            "The group is deleted.",
            queue_empty=True,
            unclaim=claims,
            forget=tuple(sorted(view.nodes)),
            remove_group=True,
            spec_mod=view.spec.mod if view.spec else 0,
        )
    )


def left_by_deletion(view: GroupView, turn: Turn) -> tuple[str, ...]:
    """The jobs whose state the deletion would leave behind: all with processes but a resident, which just stays on.

    Of a resident, too, what is on a node that was dropped: that is off as soon as the node is cleared.
    """
    resident = resident_of(turn)
    on = {resident.job} if resident.kind is ResidentKind.JOB else set()
    return tuple(sorted({*view.parked_on(turn.nodes)} - on | {*view.parked_on(dropped(view, turn))}))
