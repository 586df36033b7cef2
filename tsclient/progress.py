# SPDX-License-Identifier: Apache-2.0
"""What a caller of acquire() may be told while it waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Queued:
    """The place in the queue, told at most once a second.

    Attributes:
        position: 1 is next.
        note: why nobody is served at present; empty where somebody is.
    """

    group: str
    position: int
    note: str = ""

    def __str__(self) -> str:
        return f"{self.group}: place {self.position}" + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True, slots=True)
class Switching:
    """The accelerators are being switched over to this job.

    Attributes:
        phase: PREPARING, COMMITTING or RELEASING.
        epoch: the number of the switch.
        nodes: how many take part.
        answered: how many of them are done with the phase.
    """

    group: str
    phase: str
    epoch: int
    nodes: int
    answered: int

    def __str__(self) -> str:
        return f"{self.group}: {self.phase.lower()} {self.answered}/{self.nodes} nodes (epoch {self.epoch})"


Progress = Queued | Switching
OnProgress = Callable[[Progress], None]
