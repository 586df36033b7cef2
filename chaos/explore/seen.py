# SPDX-License-Identifier: Apache-2.0
"""Which states need no look: those that were found before, with as many faults left of each kind or more.

What may happen where faults are left may also happen where more of them are, and what happens by itself takes none. So
whatever goes wrong from such a state goes wrong from the one that was found before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from chaos.explore.faults import Budget


@dataclass(slots=True)
class Seen:
    """The fingerprints of the states found so far (`Symmetry.fingerprint`), each with that of the one before it."""

    budget: Budget
    _before: dict[int, int] = field(default_factory=dict)

    def covers(self, mark: int) -> bool:
        """Whether the state needs no look."""
        return mark in self._before or any(one in self._before for one in self._more(mark))

    def add(self, mark: int, parent: int) -> bool:
        """Note that this was reached from that. Returns whether it was to be noted."""
        new = not self.covers(mark)
        if new:
            self._before[mark] = parent
        return new

    def outdone(self, mark: int) -> bool:
        """Whether more faults are left in another state that is alike."""
        return any(one in self._before for one in self._more(mark) if one != mark)

    def before(self, mark: int) -> int:
        """The fingerprint of the state from which this one was first reached; 0 for the start."""
        return self._before[mark]

    def one_of(self, alike: int) -> int:
        """The fingerprint of a state that was found, of those alike."""
        return next(one for number in range(1 << self.budget.bits) if (one := alike | number) in self._before)

    def _more(self, mark: int) -> Sequence[int]:
        alike = self.budget.alike(mark)
        return [alike | number for number in self.budget.at_least(mark - alike)]
