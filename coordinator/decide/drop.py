# SPDX-License-Identifier: Apache-2.0
"""A node whose agent stays away: under the policy `drop` its group goes on without it, and takes it back later
(protocol rule 23).

What runs on such a node nobody can know. So the jobs that have processes there are quarantined, and the node is told
at once to clear its devices: its agent does that first of all when it is back, and then the node is in force again; or,
if the group does not want it any more, is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from coordinator.decide.decision import Decision, Verdict, Wait, WaitKind
from coordinator.decide.numbers import next_epoch
from coordinator.decide.switch import (
    begin,
    clear,
    incoming_for,
    incoming_ticket,
    knowing,
    next_head,
    policy_of,
    quarantine,
    refuse_quarantined,
    resident_of,
    still_incoming,
    unknown,
)
from coordinator.decide.view import GroupView
from ledger import defaults
from ledger.kept import Kept
from ledger.records import Ack, GroupSpec, Job, NodeLostPolicy, Outcome, Phase, ResidentKind, Turn


def held_up(view: GroupView, turn: Turn, node: str, note: str, waits: frozenset[Wait] = frozenset()) -> Verdict:
    """What becomes of a group that cannot go on because this node's agent is away: it waits, or drops the node.

    The last node of a group is never dropped.
    """
    policy = policy_of(view)
    if policy is None or policy.node_lost is NodeLostPolicy.WAIT or len(turn.nodes) == 1:
        return Verdict(waits=waits, note=note)
    wait = Wait(WaitKind.DROP, turn.epoch, defaults.drop_after_ms(policy), node)
    if wait not in view.passed:
        return Verdict(waits=waits | {wait}, note=note)
    return Verdict(_drop(view, turn, node))


def returned(view: GroupView, turn: Turn, spec: Kept[GroupSpec]) -> Verdict | None:
    """Take back the nodes that were dropped, once their agents have done what they were told when they were.

    Of those that the spec does not name, who is cleared is forgotten; the others come back to leave by a switch. While
    the spec is not in force yet, nobody is forgotten and nobody new is taken in for it.
    """
    out = sorted(view.nodes.keys() - set(turn.nodes))
    if not out:
        return None
    in_force = spec.mod == turn.generation
    wanted = {one.node for one in spec.value.nodes} if in_force else {*out, *turn.nodes} - {*turn.leaving}
    cleared = tuple(node for node in out if node not in wanted and _is_cleared(view, node))
    if cleared:
        why = f"{', '.join(cleared)} is cleared, and not wanted any more: it is forgotten."
        return Verdict(Decision(why, forget=cleared, spec_mod=spec.mod))
    told = dropped(view, turn)
    back = [node for node in out if (node in told or (in_force and node in wanted)) and _has_obeyed(view, node)]
    if not back:
        return None
    after = replace(
        turn,
        nodes=tuple(sorted({*turn.nodes, *back})),
        leaving=tuple(sorted({*turn.leaving, *back} - wanted)),
        resident=unknown(turn),
        attempt=0,
        blocked=None,
    )
    return Verdict(Decision(f"{', '.join(back)} is back: a switch will show who is on.", after))


def uncleared(view: GroupView, turn: Turn, *, at_it: bool = False) -> tuple[str, ...]:
    """The nodes that were dropped and have yet to clear their devices, whether or not they are wanted back.

    ``at_it``: of those only the ones whose agents are there and have not answered: they are about to.
    """
    left = (node for node in dropped(view, turn) if not _is_cleared(view, node))
    return tuple(node for node in left if not at_it or (view.node(node).agent and not _has_obeyed(view, node)))


def left_behind(view: GroupView, turn: Turn, job: str) -> tuple[str, ...]:
    """The nodes that were dropped and are not back where this job has processes on record.

    For all that is known they are on there; or the node is cleared and about to be back, and they are off, beside those
    on the other nodes that are on. So nobody but an operator who insists may call the job sound.
    """
    return tuple(node for node in dropped(view, turn) if job in view.parked_on((node,)))


def dropped(view: GroupView, turn: Turn) -> tuple[str, ...]:
    """The nodes that were dropped and are not back. One that a new spec names has yet to be told anything."""
    return tuple(node for node in sorted(view.nodes.keys() - set(turn.nodes)) if _is_told(view, node))


def _drop(view: GroupView, turn: Turn, node: str) -> Decision:
    why = f"The agent of {node} stays away: the group goes on without it."
    bad = f"{node}, where it has processes, was dropped: its agent was away"
    health: dict[str, Job] = {}
    for job in view.parked_on((node,)):
        if view.quarantined(job) is None:
            health.update(quarantine(view, job, bad))
    after = _without(view, turn, node)
    if turn.phase is Phase.COMMITTING:
        decision = _begun_anew(knowing(view, health), after, why, bad, health)
    else:
        decision = Decision(why, replace(after, epoch=next_epoch(view, turn)), health=health)
    assert decision.turn is not None
    told = {**decision.directives, node: clear(view, decision.turn, node)}
    return replace(decision, absent=(node,), directives=told)


def _without(view: GroupView, turn: Turn, node: str) -> Turn:
    gone = view.parked_on((node,))
    blamed = turn.blocked is not None and turn.blocked.node == node
    mixed = resident_of(turn).kind is ResidentKind.MIXED
    return replace(
        turn,
        nodes=tuple(one for one in turn.nodes if one != node),
        leaving=tuple(one for one in turn.leaving if one != node),
        blocked=None if blamed else turn.blocked,
        attempt=0 if blamed and not mixed else turn.attempt,
        pinned=None if turn.pinned and turn.pinned.job in gone else turn.pinned,
        unrestored=None if turn.unrestored and turn.unrestored.node == node else turn.unrestored,
    )


def _begun_anew(view: GroupView, turn: Turn, why: str, bad: str, health: Mapping[str, Job]) -> Decision:
    """A commit that one node will not finish: a new epoch for the others."""
    resident, ticket = resident_of(turn), incoming_ticket(view, turn)
    mixed = resident.kind is ResidentKind.MIXED
    after = replace(turn, resident=replace(resident, kind=ResidentKind.MIXED), attempt=turn.attempt if mixed else 0)
    assert turn.incoming is not None
    if turn.incoming.job not in health:
        return begin(view, after, still_incoming(view, turn), why, kill=turn.kill, health=health)
    refused = (refuse_quarantined(ticket, bad),) if ticket else ()
    following = incoming_for(next_head(view, after, beside=turn.incoming.job))
    return begin(view, after, following, why, kill=turn.kill, tickets=refused, health=health)


def _has_obeyed(view: GroupView, node: str) -> bool:
    state = view.node(node)
    return state.agent is not None and (state.directive is None or _answer(view, node) is not None)


def _is_cleared(view: GroupView, node: str) -> bool:
    """Whether the node, which is not in force, has answered that nobody is on there."""
    ack = _answer(view, node)
    return ack is not None and ack.outcome is Outcome.COMMITTED


def _is_told(view: GroupView, node: str) -> bool:
    """Whether the group has told the node anything. A hand may have deleted what; then the answer to it is left."""
    return view.node(node).directive is not None or view.node(node).ack is not None


def _answer(view: GroupView, node: str) -> Ack | None:
    state = view.node(node)
    if state.directive is None or state.ack is None or state.ack.value.directive_revision != state.directive.mod:
        return None
    return state.ack.value
