# SPDX-License-Identifier: Apache-2.0
"""Two groups on a node each, jobs that take turns in one of them, and jobs that take both at once.

Each group is judged by itself, by all that a group is judged by; then what neither shows alone.
"""

from __future__ import annotations

from collections import Counter

from chaos.checkers import Violation
from chaos.dev.job import Rhythm
from chaos.processes import ProcessTrouble
from chaos.scenarios.across import judged_across
from chaos.scenarios.contention import rest_all, start_all, wait_turns
from chaos.scenarios.scenario import Figures, Run, Scenario, judged, observer, spread, turns_of
from chaos.scenarios.several_storm import Storm
from chaos.scenarios.switches import switches
from chaos.world import Shape, World

_GROUPS = ("left", "right")
_JOBS = {
    "left-a": ("left",),
    "left-b": ("left",),
    "right-a": ("right",),
    "right-b": ("right",),
    "both-a": ("left", "right"),
    "both-b": ("right", "left"),
}
_RHYTHM = Rhythm(busy=0.1, idle=0.05, kernel=0.05)
_SHAPE = Shape(bandwidth=20e9, latency=0.02)


def _several(run: Run) -> tuple[list[str], list[Violation]]:
    violations: list[Violation] = []
    with World(replicas=3, nodes=2, group="", shape=_SHAPE) as world, observer(world) as eyes:
        for group, node in zip(_GROUPS, world.nodes, strict=True):
            world.put_group(group, [node])
        start_all(world, _JOBS, run.seed, rhythm=_RHYTHM)
        storm = Storm(run, world, eyes)
        try:
            wait_turns(world, 1)
            storm.blow()
            rest_all(world)
        except (ProcessTrouble, TimeoutError) as error:
            violations.append(Violation("a fault delays, and no more", str(error)))
        facts = _facts(run, world, storm)
        for group in _GROUPS:
            seen, wrong = judged(world, eyes, group=group)
            facts += [f"{group}: {one}" for one in seen]
            violations += [Violation(one.promise, f"in {group}: {one.what}") for one in wrong]
        seen, wrong = judged_across(world, eyes, storm.windows, storm.returns)
        violations += [*wrong, *_short(run, storm)]
        if violations:
            world.keep()
            facts.append(f"kept: all logs and the history, in {world.folder}")
        return [*facts, *seen], violations


def _facts(run: Run, world: World, storm: Storm) -> list[str]:
    hits = Counter(f"{one.party} in {one.phase.name}" for one in storm.hits)
    recovered = tuple(one.recovered for one in storm.hits)
    found = sum(len(switches(turns_of(world, group))) for group in _GROUPS)
    run.note(Figures(found, len(storm.strikes), hits, recovered))
    told = ", ".join(f"{count} {what}" for what, count in hits.items())
    return [
        f"faults: {len(storm.strikes)}, counting {len(storm.hits)} ({told})",
        f"switches: {found}; every job had a turn again after a fault: {spread(recovered)}",
    ]


def _short(run: Run, storm: Storm) -> list[Violation]:
    """What was to be shown, and had no occasion."""
    if run.over:
        return []
    missing = []
    if len(storm.hits) < run.count:
        missing.append(f"{len(storm.hits)} of {run.count} faults hit a switch")
    if run.count > 1 and not storm.windows:
        missing.append("at no time an agent was away")
    return [Violation("the scenario itself", why) for why in missing]


SEVERAL_GROUPS = Scenario(
    "several-groups",
    "Who takes two groups at once gets both or keeps none; an agent that is killed stops no group but its own.",
    10,
    _several,
)
