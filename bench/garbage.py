# SPDX-License-Identifier: Apache-2.0
"""One process that plays many has the garbage collector of many."""

from __future__ import annotations

import gc


def collect_as_rarely(agents: int) -> None:
    """Have Python look for garbage as often for each of so many agents as in a process of its own.

    All that they have in hand at once is young, and is looked through each time: for 5 % of the time of a process that
    plays 32 agents, where an agent by itself spends 1 %.
    """
    youngest, *older = gc.get_threshold()
    gc.set_threshold(youngest * agents, *older)
