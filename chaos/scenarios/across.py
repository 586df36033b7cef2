# SPDX-License-Identifier: Apache-2.0
"""What no group shows by itself: that others went on without a node, and that jobs of several had all or none."""

from __future__ import annotations

from collections.abc import Sequence

from chaos.checkers import Violation
from chaos.elsewhere import Window, stopped
from chaos.jobs import JobProcess
from chaos.observer import Observer
from chaos.scenarios.scenario import NS, spread
from chaos.together import acquires, together
from chaos.world import World
from ledger.keys import Kind


def without(world: World, node: str) -> list[JobProcess]:
    """The jobs that do not use this node."""
    return [
        job
        for job in world.jobs.values()
        if not any(one.name == node for group in job.groups for one in world.groups[group])
    ]


def judged_across(
    world: World, eyes: Observer, windows: Sequence[Window], returns: Sequence[int]
) -> tuple[list[str], list[Violation]]:
    """Sentences on what was looked at, and the violations; that there was nothing to look at is one.

    ``windows``: in which an agent was away; ``returns``: when it was started again (ns).
    """
    wrong: list[Violation] = []
    facts: list[str] = []
    for window in windows:
        elsewhere = {job.name: job.lines for job in without(world, window.node)}
        turns = ", ".join(f"{window.turns(lines)} of {job}" for job, lines in elsewhere.items())
        facts.append(f"{window.seconds:.1f} s without the agent of {window.node}; turns in the other group: {turns}")
        wrong += stopped(window, elsewhere)
    found = acquires(one for one in eyes.seen if one.place.kind is Kind.TICKET)
    wrong += together(found, {name: job.lines for name, job in world.jobs.items()})
    had = [one for one in found if one.held]
    if not had:
        wrong.append(Violation("the scenario itself", "no acquire of several groups was looked at"))
    grants = [[seat.granted_at for seat in one.seats.values()] for one in had]
    half = sum(any(min(one) < at < max(one) for at in returns) for one in grants)
    facts.append(f"acquires of both groups: {len(found)}, {len(had)} of which had both at once")
    facts.append(f"  {half} had one of them when the agent of the other came back")
    facts.append(f"  from the first grant to the last: {spread([(max(one) - min(one)) / NS for one in grants])}")
    return facts, wrong
