# SPDX-License-Identifier: Apache-2.0
"""The switches of a history: when each began, how it went on, and when it ended in a grant. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from chaos.history import Recorded
from ledger.records import Phase, Turn

MOVING = frozenset({Phase.PREPARING, Phase.COMMITTING, Phase.RELEASING})


@dataclass(frozen=True, slots=True)
class Switch:
    """From the first PREPARE after a quiet time until the next grant, whatever was between; or until a COMMIT has ended
    and nobody was there to be granted. ns; ``end`` 0: not yet.

    Attributes:
        epochs: in which it was tried, oldest first.
        phases: of each record, without repetitions.
    """

    begin: int
    end: int
    epochs: tuple[int, ...]
    phases: tuple[Phase, ...]

    @property
    def took(self) -> float:
        """Seconds; of one without an end: 0."""
        return max(self.end - self.begin, 0) / 1e9

    @property
    def course(self) -> str:
        """How it went, for people."""
        if Phase.RELEASING in self.phases:
            return "released, then served"
        if len(self.epochs) > 1:
            return "prepared anew in another epoch, then served"
        return "finished in its own epoch"


def switches(turns: Sequence[Recorded]) -> list[Switch]:
    """All switches of one group's history, oldest first."""
    found: list[Switch] = []
    begin = 0
    epochs: list[int] = []
    phases: list[Phase] = []
    was = Phase.IDLE
    for one in turns:
        turn = one.turn
        if turn is None:
            continue
        if not begin and turn.phase not in MOVING:
            continue
        begin = begin or one.mono
        if turn.phase in MOVING and turn.epoch not in epochs:
            epochs.append(turn.epoch)
        if turn.phase not in phases:
            phases.append(turn.phase)
        nobody = turn.phase is Phase.IDLE and was is Phase.COMMITTING
        was = turn.phase
        if turn.phase is Phase.HELD or nobody:
            found.append(Switch(begin, one.mono, tuple(epochs), tuple(phases)))
            begin, epochs, phases = 0, [], []
    if begin:
        found.append(Switch(begin, 0, tuple(epochs), tuple(phases)))
    return found


def phase_took(turns: Sequence[Recorded], phase: Phase) -> float:
    """Seconds that the turn was in this phase, as a median of all times that it came to it; 0: never yet."""
    took: list[float] = []
    since: int | None = None
    for one in turns:
        now = one.turn.phase if one.turn else None
        if since is not None and now is not phase:
            took.append((one.mono - since) / 1e9)
            since = None
        elif since is None and now is phase:
            since = one.mono
    return median(took) if took else 0.0


def turn_at(turns: Sequence[Recorded], mono: int) -> Turn | None:
    """The turn as it was known at ``mono``."""
    known = [one for one in turns if one.mono <= mono]
    return known[-1].turn if known else None


def switch_at(found: Sequence[Switch], mono: int) -> Switch | None:
    """The switch that was under way at ``mono``."""
    return next((one for one in found if one.begin <= mono and (not one.end or mono < one.end)), None)
