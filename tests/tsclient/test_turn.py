# SPDX-License-Identifier: Apache-2.0
"""How a turn's end is told to whoever waits for the reason."""

from __future__ import annotations

import threading
import time

from tests.tsclient.waiting import until
from tsclient.errors import NotHolder
from tsclient.turn import Ending

DEADLINE = 60.0


def test_all_who_wait_for_an_end_are_told_and_the_first_end_counts() -> None:
    ending, told = Ending(), list[object]()

    def wait() -> None:
        ending.wait(DEADLINE)
        told.append(ending.error)

    waiting = [threading.Thread(target=wait) for _ in range(3)]
    for thread in waiting:
        thread.start()
    until(lambda: len(ending._waiting) == len(waiting))
    first = NotHolder("It was given back.")
    ending.set(first)
    ending.set(NotHolder("It was dropped."))
    for thread in waiting:
        thread.join(DEADLINE / 2)  # they are told: they do not wait until their own time is up
    assert told == [first] * 3


def test_nobody_waits_for_an_end_that_is_there() -> None:
    ending, began = Ending(), time.monotonic()
    ending.set(NotHolder("It was given back."))
    ending.wait(DEADLINE)
    assert time.monotonic() - began < DEADLINE / 2
