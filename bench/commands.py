# SPDX-License-Identifier: Apache-2.0
"""What a contender for a turn is told, one command a line, and what it answers: the system's and the floor's alike.

    acquire     →  ``queued`` once it has a place, where it has to wait; ``granted SECONDS`` when it has the turn
    yield       →  ``yielded SECONDS SECONDS``: when it began, and when that was confirmed
    once        →  ``once SECONDS``: an acquire and a yield, one after the other; how long both took

Times are those of CLOCK_MONOTONIC, which is one clock for all processes of a machine.
"""

from __future__ import annotations

import sys
import time
from typing import Protocol


class Contender(Protocol):
    """A job that asks for turns on one group."""

    def acquire(self, queued: bool) -> None:
        """Return with the turn. ``queued``: print that line as soon as it has a place in the queue."""

    def yield_(self) -> None: ...
    def close(self) -> None: ...


def follow(contender: Contender) -> None:
    """Do what the standard input says, to its end."""
    print("ready", flush=True)
    for line in sys.stdin:
        match line.strip():
            case "acquire":
                contender.acquire(queued=True)
                print(f"granted {time.monotonic()!r}", flush=True)
            case "yield":
                began = time.monotonic()
                contender.yield_()
                print(f"yielded {began!r} {time.monotonic()!r}", flush=True)
            case "once":
                began = time.monotonic()
                contender.acquire(queued=False)
                contender.yield_()
                print(f"once {time.monotonic() - began!r}", flush=True)
            case other:
                sys.exit(f"unknown command {other!r}")
    contender.close()
