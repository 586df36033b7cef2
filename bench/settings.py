# SPDX-License-Identifier: Apache-2.0
"""How long and how large a run is. `QUICK` is for two cores, `FULL` for sixteen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes of the parts; each can be given on the command line by its name.

    Attributes:
        rounds: of each interleaved measurement.
        warm_up: rounds before the first that counts.
        seed: of the order within the rounds.
    """

    rounds: int
    warm_up: int
    seed: int = 1


QUICK = Settings(rounds=60, warm_up=5)
FULL = Settings(rounds=400, warm_up=20)
