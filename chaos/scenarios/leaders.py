# SPDX-License-Identifier: Apache-2.0
"""A holder dies while etcd's leader changes twice in every TTL.

Each new leader gives every lease its whole TTL anew, so a lease alone would never end. The session ends all the same:
the replica that serves it counts from the last beat that it heard.
"""

from __future__ import annotations

import functools
import os
import signal

from chaos.checkers import Violation
from chaos.dev.job import Rhythm
from chaos.faults.family import CLIENT_HELPER, helpers
from chaos.leaders import LeaderChanges
from chaos.processes import ProcessTrouble
from chaos.scenarios.handoffs import percentiles
from chaos.scenarios.losing import Loss, hold, lose, queue_up
from chaos.scenarios.scenario import NS, WITHIN, Figures, Run, Scenario, judged, observer
from chaos.world import World
from ledger.etcd_server import EtcdServerError

_TTL = 3.0
_LIMIT = 2 * _TTL + 3.0
"""Seconds in which the turn of a dead holder is to be reclaimed."""

_ENDLESS = Rhythm(busy=3600.0, idle=0.0, kernel=0.1)
_FOLLOWER = Rhythm(busy=0.3, idle=0.1, kernel=0.1)


def _leader_changes(run: Run) -> tuple[list[str], list[Violation]]:
    losses: list[Loss] = []
    changes: list[int] = []
    found: list[Violation] = []
    dead: list[str] = []
    with World(replicas=2, etcd=3) as world, observer(world) as eyes:
        follower = world.start_job("follower", rhythm=_FOLLOWER, seed=run.seed)
        try:
            while len(losses) < run.count and not run.over:
                dead.append(f"victim-{len(dead)}")
                hold(world, eyes, dead[-1], _ENDLESS, run.seed, _TTL)
                queue_up(world, eyes, follower)
                with LeaderChanges(world, _TTL / 2) as leaders:
                    losses.append(lose(world, eyes, dead[-1], functools.partial(_kill_whole, world, dead[-1])))
                changes.append(sum(at < losses[-1].reclaimed for at in leaders.at))
                took = _reclaimed(losses[-1])
                run.say(f"{dead[-1]}: reclaimed after {took:.2f} s, {changes[-1]} changes of the leader meanwhile")
                if took > _LIMIT:
                    found.append(Violation("a dead holder is replaced", f"{took:.2f} s is more than {_LIMIT:g} s"))
                if not changes[-1]:
                    found.append(
                        Violation("the scenario itself", "the leader did not change before the turn was reclaimed")
                    )
                follower.rest()
                follower.wait_rested(WITHIN)
        except (ProcessTrouble, TimeoutError, EtcdServerError) as error:
            found.append(Violation("a dead holder is replaced", str(error)))
        facts, violations = judged(world, eyes, excused=dead)
    took_all = [_reclaimed(one) for one in losses]
    run.note(Figures(faults=len(losses), hits={"holder": len(losses)}, delays=tuple(took_all)))
    own = [
        f"dead holders: {len(losses)}; etcd's leader changed {sum(changes)} times while they were waited for",
        f"turn reclaimed: {percentiles(took_all)}; at most twice the TTL of {_TTL:g} s and 3 s more: {_LIMIT:g} s",
    ]
    return [*own, *facts], [*found, *violations]


def _kill_whole(world: World, job: str) -> None:
    """The client and the helper that would say of it that it is dead: as when a container is ended, or a machine."""
    pid = world.pid(job)
    assert pid is not None, f"{job} holds the turn, so it runs"
    theirs = helpers(pid, CLIENT_HELPER)
    for one in theirs:
        os.kill(one, signal.SIGSTOP)
    world.kill(job)
    for one in theirs:
        os.kill(one, signal.SIGKILL)


def _reclaimed(loss: Loss) -> float:
    return (loss.reclaimed - loss.at) / NS


LEADER_CHANGES = Scenario(
    "leader-changes",
    "A holder that dies while etcd's leader changes every half TTL is replaced within twice the TTL and 3 s.",
    10,
    _leader_changes,
)
