# SPDX-License-Identifier: Apache-2.0
"""What may go wrong, and how often: a budget, so that every history has an end of faults."""

from __future__ import annotations

from typing import NamedTuple

from chaos.explore.state import NodeState, State

FAULTS: dict[str, str] = {
    "expire": "a session's lease ends; its process lives on and asks again",
    "die": "a client's process dies with its session; its processes on the devices stay",
    "cancel": "a client takes back an acquire",
    "evict": "an operator evicts a job",
    "pause": "an operator pauses the group, and lets it go on after a while",
    "restored": "etcd is restored from a backup, and repaired before a replica starts",
    "crash": "a replica dies between deciding and writing",
    "restart": "an agent dies, and is started again",
    "away": "the lease of a dead agent ends before it is started again",
    "drop": "an agent stays away for so long that the group goes on without its node",
    "slow": "an agent does not answer PREPARE in the time allowed",
    "resist": "an outgoing job cannot be locked",
    "unfit": "the incoming job fails the checks of PREPARE",
    "refuse": "a node refuses PREPARE, or COMMIT when it must prepare again",
    "unsaved": "a locked job cannot be saved",
    "fatal": "a process fails for good while it is saved",
    "unrestored": "the incoming job cannot be restored",
}


LASTING = frozenset({"resist", "unfit", "refuse", "unsaved", "fatal", "unrestored"})
"""Faults of a node that may come to stay."""


class Chance(NamedTuple):
    """Whether a fault may happen now, whether it is sure to, and which fault that takes from the budget."""

    may: bool
    sure: bool
    costs: str


NEVER, SURE = Chance(may=False, sure=False, costs=""), Chance(may=True, sure=True, costs="")


class Budget:
    """Which of the faults are on, and how to spend one.

    ``lasting``: a node's fault has come to stay: from then on the same goes wrong there every time.
    """

    def __init__(self, budget: dict[str, int], *, lasting: bool = False) -> None:
        self.lasting = lasting
        unknown = budget.keys() - FAULTS.keys()
        if unknown:
            raise ValueError(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
        self.names = tuple(name for name in FAULTS if budget.get(name))
        self.start = tuple(budget[name] for name in self.names)
        self._place = {name: place for place, name in enumerate(self.names)}

    def left(self, state: State, name: str) -> bool:
        place = self._place.get(name)
        return place is not None and state.faults[place] > 0

    def chance(self, state: State, node: NodeState, name: str) -> Chance:
        """Whether this may go wrong on this node."""
        if node.lasting == name:
            return SURE
        return Chance(may=True, sure=False, costs=name) if self.left(state, name) else NEVER

    def spent(self, state: State, name: str) -> tuple[int, ...]:
        """What is left of the faults after this one."""
        place = self._place[name]
        return (*state.faults[:place], state.faults[place] - 1, *state.faults[place + 1 :])
