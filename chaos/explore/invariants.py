# SPDX-License-Identifier: Apache-2.0
"""What must hold: in every state, for every write, and once everything has come to rest.

The numbers are those of docs/explorer.md. Some are checked where the thing is done: 1 as a driver call is made
(`device`), 4 and 7 as a transaction is built (`effects`), 8 as an agent saves (`device`), 11 as an answer is written
(`agents`); 10 and, of devices, 12 as a write applies, here. Invariant 13, of the holder's own clock, is checked by the
schedules of the client's session (tests/property), since nothing here takes time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.explore.state import NO_TURN, PARDONED, QUARANTINED, Pending, Record, State, in_force

if TYPE_CHECKING:
    from chaos.explore.world import World


class Broken(Exception):
    """An invariant does not hold."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"invariant {number}: {what}")
        self.number = number


def check_state(world: World, state: State) -> None:
    """What must hold in every state."""
    turn, jobs = state.turn, world.jobs
    for name, node in zip(world.nodes, state.nodes, strict=True):
        running = [
            job for job, process in zip(jobs, node.processes, strict=True) if process and process.state == "RUNNING"
        ]
        if len(running) > 1:
            raise Broken(1, f"{' and '.join(running)} can run on {name} at the same time")
    granted = [job for job, ticket in enumerate(state.tickets) if ticket and ticket.state == "GRANTED"]
    if len(granted) > 1:
        raise Broken(5, "two tickets are granted")
    if turn.phase == "HELD":
        _check_held(world, state, granted)
    elif granted and not _taken_back(world, state):
        raise Broken(5, f"{jobs[granted[0]]} has a grant, and nobody holds the turn")


def _taken_back(world: World, state: State) -> bool:
    """Whether a hand has deleted the turn, and a replica would do something about the grant that it has left."""
    return "wipe" in dict(world.size.faults) and any(one.effect is not None for one in world.core.decide(state))


def _check_held(world: World, state: State, granted: list[int]) -> None:
    turn = state.turn
    holder = world.jobs.index(turn.holder)
    ticket = state.tickets[holder]
    holds = granted == [holder] and ticket is not None and ticket.current
    if not holds and all(one.effect is None for one in world.core.decide(state)):
        raise Broken(5, f"{turn.holder} holds the turn without its ticket, and no replica does anything about it")
    for place, (name, node) in enumerate(zip(world.nodes, state.nodes, strict=True)):
        for job, process in enumerate(node.processes):
            if process is None:
                continue
            if not in_force(turn, place):
                # What an operator left behind, who insisted or deleted the turn that would have waited, is theirs.
                by_hand = not dict(world.size.faults).keys().isdisjoint(("force", "wipe"))
                left = by_hand and process.state == "PARKED" and place not in world.size.generations[turn.generation]
                if job == holder and not left:
                    raise Broken(8, f"{turn.holder} holds the turn and has a process on {name}, which was dropped")
                continue
            if job != holder and process.state != "PARKED":
                raise Broken(2, f"{turn.holder} holds the turn and {world.jobs[job]} is {process.state} on {name}")
            if job == holder and process.state == "LOCKED":
                raise Broken(9, f"{turn.holder} holds the turn and is locked on {name}")
            left_behind = any(state.lost_by[job] >> life & 1 for life in range(process.session, turn.holder_session))
            parked = process.state == "PARKED" and not _recorded_lost(world, node.records[job], turn.holder_session)
            if job == holder and holds and parked and not left_behind:
                raise Broken(2, f"{turn.holder} holds the turn and is parked on {name}")
            if job == holder and holds and process.state == "RUNNING" and left_behind:
                raise Broken(8, f"{turn.holder} was restored on {name} from a session that had lost its turn")


def _recorded_lost(world: World, record: Record | None, holder: int) -> bool:
    """Whether the ledger goes on saying that another session lost a process, after who lost what has been forgotten."""
    forgotten = not {"wipe", "restored"}.isdisjoint(dict(world.size.faults))
    return forgotten and record is not None and record.lost not in (0, holder)


def check_write(world: World, state: State, pending: Pending) -> None:
    """What must hold for a write that is about to apply."""
    before, effect = state.turn, pending.effect
    after = effect.turn
    if after is not None and not pending.fresh:
        raise Broken(10, "a write that was decided on an older turn applies")
    if any(state.nodes[place].claimed == "theirs" for place in effect.claim):
        raise Broken(12, "a device of another group is claimed")
    for change in effect.tickets:
        ticket = state.tickets[change.job]
        if change.what != "create" and ticket is not None and ticket.create != change.create:
            raise Broken(10, f"{change.what} is about an older ticket of {world.jobs[change.job]} than it applies to")
    if after is None:
        return
    for place, node in enumerate(state.nodes):
        leaves = world.nodes[place] in before.leaving
        if node.registered and in_force(before, place) and not in_force(after, place) and not leaves:
            raise Broken(10, f"{world.nodes[place]} is dropped, and its agent is there")
    if after.phase == "PREPARING" and (before.phase != "PREPARING" or effect.directives) and not effect.new_epoch:
        raise Broken(4, "a new switch has the epoch of an older one")
    if any(told.kind == "PREPARE" and told.kill for _, told in effect.directives):
        resists = before.ended == "LOST" or before.resident == "MIXED" or before.pinned or before.kill
        if not resists and after.ended != "LOST":
            raise Broken(8, f"{before.resident_job or 'nobody'} ended its turn in order and is to be killed")
    if after.phase == "HELD" and before.phase != "HELD":
        _check_grant(world, state, pending)


def _check_grant(world: World, state: State, pending: Pending) -> None:
    before, effect = state.turn, pending.effect
    after = effect.turn
    assert after is not None
    holder = world.jobs.index(after.holder)
    if not effect.new_token:
        raise Broken(4, "a grant has the token of an older one")
    if before.phase == "IDLE":
        if (before.resident, before.resident_job, before.ended) != ("JOB", after.holder, "CLEAN") or state.lost[holder]:
            raise Broken(14, f"{after.holder} is granted without a switch, and its last turn was lost")
    elif any(
        in_force(before, place)
        and (node.answer is None or node.answer.outcome != "COMMITTED" or not (node.current or node.untold))
        for place, node in enumerate(state.nodes)
    ):
        raise Broken(3, f"{after.holder} is granted, and not every node has committed")
    if state.quarantined[holder] == QUARANTINED:
        raise Broken(6, f"{after.holder} is granted, and is quarantined")
    own = state.tickets[holder]
    for job, ticket in enumerate(state.tickets):
        if ticket is None or ticket.state != "WAITING" or (own is not None and ticket.create >= own.create):
            continue
        if world.size.priority(job) != world.size.priority(holder):
            continue
        # Who was declared sound while the switch was under way was not eligible when that began.
        sound = state.quarantined[job] != QUARANTINED and (before.phase == "IDLE" or state.quarantined[job] != PARDONED)
        if sound and before.pinned in ("", world.jobs[job]):
            raise Broken(6, f"{after.holder} is granted before {world.jobs[job]}, which came earlier")


def check_rest(world: World, state: State) -> None:
    """What must hold where nothing happens by itself any more."""
    turn = state.turn
    if turn.phase == "IDLE" and any(one.waits for one in world.core.decide(state)):
        return  # blocked, or a lost holder has its grace: it goes on when that is over
    if turn.phase not in ("IDLE", "HELD", NO_TURN):
        raise Broken(16, f"nothing happens any more in {turn.phase}")
    for name, node in zip(world.nodes, state.nodes, strict=True):
        for owner, process in zip(world.jobs, node.processes, strict=True):
            if process and process.state == "LOCKED":
                raise Broken(9, f"nothing happens any more, and {owner} is locked on {name}")
    if any(node.claimed == "theirs" or (node.draining and in_force(turn, n)) for n, node in enumerate(state.nodes)):
        return  # nobody new is brought on there, and the group says so
    for job, ticket in enumerate(state.tickets):
        if ticket is None or ticket.state != "WAITING":
            continue
        if turn.phase == "HELD" or turn.paused or turn.pinned not in ("", world.jobs[job]):
            continue
        raise Broken(15, f"{world.jobs[job]} waits for ever")
