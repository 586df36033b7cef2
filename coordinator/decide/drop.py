# SPDX-License-Identifier: Apache-2.0
"""A node whose agent stays away: under the policy `drop` its group goes on without it, and takes it back later
(protocol rule 23).

What runs on such a node nobody can know. So the jobs that have processes there are quarantined, and the node is told
at once to clear its devices: its agent does that first of all when it is back, and then the node is in force again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from coordinator.decide.decision import Decision, Verdict, Wait, WaitKind
from coordinator.decide.numbers import next_epoch
from coordinator.decide.switch import (
    begin,
    clear,
    incoming_for,
    incoming_ticket,
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
from ledger.records import GroupSpec, Job, NodeLostPolicy, Phase, ResidentKind, Turn


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


def returned(view: GroupView, turn: Turn, spec: GroupSpec) -> Verdict | None:
    """Take back the nodes that were dropped, once their agents have done what they were told when they were."""
    back = [one.node for one in spec.nodes if one.node not in turn.nodes and _has_obeyed(view, one.node)]
    if not back:
        return None
    after = replace(turn, nodes=tuple(sorted({*turn.nodes, *back})), resident=unknown(turn), attempt=0, blocked=None)
    return Verdict(Decision(f"{', '.join(back)} is back: a switch will show who is on.", after))


def _drop(view: GroupView, turn: Turn, node: str) -> Decision:
    why = f"The agent of {node} stays away: the group goes on without it."
    bad = f"{node}, where it has processes, was dropped: its agent was away"
    health: dict[str, Job] = {}
    for job in view.parked_on((node,)):
        if view.quarantined(job) is None:
            health.update(quarantine(view, job, bad))
    after = _without(view, turn, node)
    if turn.phase is Phase.COMMITTING:
        decision = _begun_anew(_knowing(view, health), after, why, bad, health)
    else:
        decision = Decision(why, replace(after, epoch=next_epoch(view, turn)), health=health)
    if node in turn.leaving:  # it is not wanted back
        return replace(decision, absent=(node,), forget=(node,))
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


def _knowing(view: GroupView, health: Mapping[str, Job]) -> GroupView:
    """The same group, its jobs as they are to be: who is about to be quarantined is not next."""
    return replace(view, jobs={**view.jobs, **{job: Kept(job, record, 0, 0) for job, record in health.items()}})


def _has_obeyed(view: GroupView, node: str) -> bool:
    state = view.node(node)
    if state.agent is None:
        return False
    return state.directive is None or (
        state.ack is not None and state.ack.value.directive_revision == state.directive.mod
    )
