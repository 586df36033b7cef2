# SPDX-License-Identifier: Apache-2.0
"""What is done to a system while it runs, to be drawn beside what its clients saw."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that was done, at ``at`` (ns of CLOCK_MONOTONIC, just before it)."""

    at: int
    what: str
