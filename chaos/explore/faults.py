# SPDX-License-Identifier: Apache-2.0
"""What may go wrong, and how often: a budget, so that every history has an end of faults."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence

from chaos.explore.state import State

FAULTS: dict[str, str] = {
    "expire": "a session's lease ends; its process lives on and asks again",
    "die": "a client's process dies with its session; its processes on the devices stay",
    "ends": "a job's process on a node ends by itself",
    "cancel": "a client takes back an acquire",
    "evict": "an operator evicts a job",
    "pardon": "an operator declares a quarantined job sound",
    "pause": "an operator pauses the group, and lets it go on after a while",
    "drain": "an operator drains a node, and ends that after a while",
    "respec": "an operator gives the group its next spec",
    "delete": "an operator deletes the group",
    "force": "an operator insists on a spec or a deletion that would leave state behind",
    "taken": "another group has the device of a node, and gives it back after a while",
    "erase": "a directive is deleted from etcd by hand",
    "wipe": "the group's turn is deleted from etcd by hand",
    "restored": "etcd is restored from a backup, and repaired before a replica starts",
    "crash": "a replica dies between deciding and writing, any number of times",
    "repeat": "a message arrives once more: a client's request, or an agent's answer",
    "restart": "an agent dies at any step, or while a driver call is in flight, and is started again",
    "late": "an agent dies, and its answer arrives after that",
    "away": "the lease of a dead agent ends before it is started again",
    "lapse": "the lease of a living agent ends; it registers anew",
    "ahead": "an agent that is started has seen a later epoch than the group's",
    "unsure": "an agent cannot confirm its directive for so long that it unlocks",
    "drop": "an agent stays away for so long that the group goes on without its node",
    "slow": "an agent does not answer PREPARE in the time allowed",
    "refuse": "a node cannot be looked at",
    "unsavable": "an outgoing job fails the checks of PREPARE",
    "unfit": "the incoming job has no room on the device",
    "resist": "an outgoing job cannot be locked",
    "stuck": "a job that was locked cannot be unlocked",
    "unsaved": "a locked job cannot be saved",
    "fatal": "a process fails for good while it is saved",
    "unrestored": "the incoming job cannot be restored",
}

LASTING = frozenset({"refuse", "unsavable", "unfit", "resist", "unsaved", "fatal", "unrestored"})
"""Faults of a node that may come to stay."""


ANY = frozenset({"crash"})
"""Faults that may happen any number of times: what comes of them is a state that is reached without them, too."""


class Budget:
    """Which of the faults are on, and how to spend one.

    Attributes:
        names: of those that are counted.
        start: how many there are of each.
        bits: that it takes to tell apart what may be left of them.
    """

    def __init__(self, budget: dict[str, int]) -> None:
        unknown = budget.keys() - FAULTS.keys()
        if unknown:
            raise ValueError(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
        self.names = tuple(name for name in FAULTS if budget.get(name) and name not in ANY)
        self._any = frozenset(name for name in ANY if budget.get(name))
        self.start = tuple(budget[name] for name in self.names)
        self.bits = (math.prod(times + 1 for times in self.start) - 1).bit_length()
        every = tuple(itertools.product(*(range(times + 1) for times in self.start)))
        self._number = {left: number for number, left in enumerate(every)}
        self._at_least = tuple(
            tuple(number for number, more in enumerate(every) if all(map(operator.ge, more, left))) for left in every
        )
        self._place = {name: place for place, name in enumerate(self.names)}

    def number(self, faults: tuple[int, ...]) -> int:
        """A number of ``bits`` bits for what is left of the faults."""
        return self._number[faults]

    def at_least(self, number: int) -> tuple[int, ...]:
        """The numbers of all that leaves as many of each fault as this, or more."""
        return self._at_least[number]

    def alike(self, mark: int) -> int:
        """What the fingerprints have in common of all states that differ in what is left of the faults alone."""
        return mark >> self.bits << self.bits

    def owner(self, mark: int, parts: int) -> int:
        """Which of so many parts of a search answers for this state, and all that are alike."""
        return (mark >> self.bits) % parts

    def left(self, state: State, name: str) -> bool:
        place = self._place.get(name)
        return name in self._any if place is None else state.faults[place] > 0

    def enough(self, state: State, names: Sequence[str]) -> bool:
        """Whether there is one of the faults left for each time that it is named."""
        return all(state.faults[self._place[name]] >= names.count(name) for name in names)

    def of(self, state: State, names: Sequence[str]) -> dict[str, int]:
        """How many are left of each of these of which there are any."""
        return {name: state.faults[self._place[name]] for name in names if self.left(state, name)}

    def spent(self, state: State, *names: str) -> tuple[int, ...]:
        """What is left of the faults after these."""
        faults = list(state.faults)
        for name in names:
            faults[self._place[name]] -= 1
        return tuple(faults)
