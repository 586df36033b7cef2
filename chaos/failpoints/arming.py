# SPDX-License-Identifier: Apache-2.0
"""Arming points in processes that run: a file for each, which the first process to get there takes away."""

from __future__ import annotations

import time
from pathlib import Path

from chaos.failpoints.registry import Point

_LOOK_SECONDS = 0.02


class Arming:
    """The folder that the processes look into."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def arm(self, point: Point) -> None:
        """The next process that passes it dies there. Whole or not there: who finds the file reads it."""
        (self._folder / f".{point.name}").unlink(missing_ok=True)
        fresh = self._folder / ".fresh"
        fresh.write_text("kill", encoding="ascii")
        fresh.rename(self._folder / point.name)

    def disarm(self, point: Point) -> None:
        (self._folder / point.name).unlink(missing_ok=True)

    def wait_hit(self, point: Point, within: float) -> bool:
        """Whether a process has died there, once it has or so many seconds are over."""
        taken = self._folder / f".{point.name}"
        limit = time.monotonic() + within
        while not taken.exists():
            if time.monotonic() > limit:
                return False
            time.sleep(_LOOK_SECONDS)
        return True
