# SPDX-License-Identifier: Apache-2.0
"""Until when each turn is proved: one number a turn, written where the session is and read where the turn is used.

A number is a time of the boot-time clock in seconds. It is minus infinity as soon as the turn is over, whatever
ended it, and for good: a confirmation that comes later moves the numbers of the turns that are still held. Each
is eight aligned bytes, which the processor writes and reads as one.
"""

from __future__ import annotations

import math
import mmap
import os
from array import array
from collections import deque

from tsclient.descriptors import above_standard
from tsclient.errors import TooLarge

OVER = -math.inf
SLOTS = 4096  # turns and acquires of a process at a time; a session has 1,000 at most
BYTES = SLOTS * 8


class Deadlines:
    """The numbers, and which of them are free. Any thread may take and free slots: a deque's steps are atomic."""

    def __init__(self, cells: memoryview[float]) -> None:
        self.cells = cells
        self._free = deque(range(SLOTS))

    def take(self) -> int:
        """
        Raises:
            TooLarge: none is free.
        """
        try:
            slot = self._free.popleft()
        except IndexError as error:
            raise TooLarge(f"This process has {SLOTS} acquires and turns already.") from error
        self.cells[slot] = OVER
        return slot

    def free(self, slot: int) -> None:
        self._free.append(slot)


def local() -> Deadlines:
    """For a session in this very process."""
    return Deadlines(memoryview(array("d", [OVER]) * SLOTS))


def memory() -> int:
    """A file descriptor of memory that two processes can share; not inherited unless passed on."""
    descriptor = above_standard(os.memfd_create("tsclient-deadlines", os.MFD_CLOEXEC))
    os.ftruncate(descriptor, BYTES)
    return descriptor


def cells(descriptor: int) -> memoryview[float]:
    """The numbers in that memory."""
    return memoryview(mmap.mmap(descriptor, BYTES)).cast("d")
