# SPDX-License-Identifier: Apache-2.0
"""How large a model is, what it is of, and how often what may go wrong."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.decide.spec import AT_ONCE
from ledger.records import LostPolicy, NodeLostPolicy, Policy


@dataclass(frozen=True, slots=True)
class Size:
    """A model.

    Attributes:
        faults: the name of each fault that may happen, and how often.
        lasting: a fault of a node comes to stay. Time that passes then counts as an event from outside: what is blocked
            may be tried again for ever, but never without a pause.
        specs: for each generation of the spec the nodes that it names; empty: all, and there is one generation.
        priorities: of each job's tickets; empty: all alike.
        several: jobs whose tickets are for this group and for another.
        aging, max_hold: of the group's policy: the latter is on or off.
        park_only: of the policy: a lost job is never killed.
        at_once: how many claims or waiters one transaction takes: in the field `coordinator.decide.spec.AT_ONCE`.
        fence: a new agent waits until the helpers of the old one have ended. Off, to see what comes of that.
        prompt: what an agent has only to note of its device is noted at once. Nobody decides on it but where a node
            leaves the group or a job is pinned; it leaves out that agents are slow in that, and many states.
        symmetry: of states that differ by the names of jobs and nodes alone, one is searched.
    """

    jobs: int = 2
    nodes: int = 2
    replicas: int = 1
    faults: tuple[tuple[str, int], ...] = ()
    lasting: bool = False
    specs: tuple[tuple[int, ...], ...] = ()
    priorities: tuple[int, ...] = ()
    several: tuple[int, ...] = ()
    aging: bool = False
    max_hold: bool = False
    park_only: bool = False
    at_once: int = AT_ONCE
    fence: bool = True
    prompt: bool = False
    symmetry: bool = True

    @property
    def job_names(self) -> tuple[str, ...]:
        return tuple("abcdefgh"[: self.jobs])

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(f"n{number + 1}" for number in range(self.nodes))

    @property
    def generations(self) -> tuple[tuple[int, ...], ...]:
        return self.specs or (tuple(range(self.nodes)),)

    @property
    def policy(self) -> Policy:
        """The group's policy. That a node may be dropped matters only with the fault `drop`."""
        return Policy(
            node_lost=NodeLostPolicy.DROP,
            lost=LostPolicy.PARK_ONLY if self.park_only else LostPolicy.PARK_OR_KILL,
            aging=self.aging,
            max_hold_ms=60_000 if self.max_hold else 0,
        )

    def priority(self, job: int) -> int:
        return self.priorities[job] if self.priorities else 0

    def kind(self, job: int) -> tuple[int, bool]:
        """Jobs of one kind are told apart by their names alone."""
        return self.priority(job), job in self.several

    def describe(self) -> str:
        """In words."""
        faults = ", ".join(f"{name} x {times}" if times > 1 else name for name, times in self.faults) or "no faults"
        more = [
            "to stay" if self.lasting else "",
            f"{len(self.specs)} specs" if self.specs else "",
            "priorities" if self.priorities else "",
            "aging" if self.aging else "",
            "turns of limited length" if self.max_hold else "",
            "a job of two groups" if self.several else "",
            "lost jobs are never killed" if self.park_only else "",
            f"{self.at_once} at once" if self.at_once != AT_ONCE else "",
            "" if self.fence else "no OS locks",
            "agents note at once" if self.prompt else "",
        ]
        said = "".join(f", {one}" for one in more if one)
        return f"{self.jobs} jobs, {self.nodes} nodes, {self.replicas} replicas; {faults}{said}"
