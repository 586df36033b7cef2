# SPDX-License-Identifier: Apache-2.0
"""A search of its own that keeps every state, for what the real one is held against."""

from __future__ import annotations

from collections.abc import Callable

from chaos.explore.invariants import check_state
from chaos.explore.state import State
from chaos.explore.symmetry import Symmetry
from chaos.explore.world import World


def reached(world: World, form: Callable[[State], State] | None = None) -> set[State]:
    """Every state in this form; by default in the one that stands for all that differ by names."""
    form = form or Symmetry(world.size).canonical
    found = {form(world.start())}
    todo = list(found)
    while todo:
        state = todo.pop()
        check_state(world, state)
        for following in world.next(state):
            after = form(following.state)
            if after not in found:
                found.add(after)
                todo.append(after)
    return found


def as_it_is(state: State) -> State:
    """No form: states that differ by names alone are kept apart."""
    return state
