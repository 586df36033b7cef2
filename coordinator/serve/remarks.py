# SPDX-License-Identifier: Apache-2.0
"""What people should know of a group beside where its turn stands: what the promises do not cover just now. Pure."""

from __future__ import annotations

from coordinator.decide import GroupView
from coordinator.decide.drop import uncleared
from coordinator.decide.switch import may_kill, resident_of
from ledger.records import Ended

AT_MOST = 3
"""Processes that are named for each node; of more the number is said."""


def remarks(view: GroupView) -> tuple[str, ...]:
    """Sentences; none where all is as it should be (protocol rules 8, 13, 21 and 23)."""
    found: list[str] = []
    for node, state in sorted(view.nodes.items()):
        if state.processes is not None:
            records = state.processes.value
            every = ((job.job, one) for job in records.jobs for one in job.processes)
            out = [f"{one.process.pid} of {job}" for job, one in every if one.out_of_turn and one.process]
            if out:
                found.append(f"On {node} out of turn: process {_some(out)}.")
            if records.strangers:
                pids = [str(one.pid) for one in records.strangers]
                found.append(f"On {node} of no job of the group: process {_some(pids)}.")
        if state.agent is not None and not state.agent.value.parked_means_stopped:
            found.append(f"On {node} a parked process could still run: promise 1 holds only for jobs that behave.")
    if view.turn is not None and (nodes := uncleared(view, view.turn.value)):
        found.append(f"{_some(list(nodes))}, not in force, has yet to clear its devices: the group keeps them.")
    if view.turn is not None and resident_of(view.turn.value).ended is Ended.LOST and not may_kill(view):
        found.append(f"{resident_of(view.turn.value).job} is lost, and by the policy park-only it is not killed.")
    return tuple(found)


def _some(names: list[str]) -> str:
    more = len(names) - AT_MOST
    return ", ".join(names[:AT_MOST]) + (f" and {more} more" if more > 0 else "")
