# SPDX-License-Identifier: Apache-2.0
"""The queue and the ordered map below it: after any changes what sorting everything anew would give, and pictures of
them that stay as they were."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ledger import ordered
from ledger.kept import Kept
from ledger.ordered import Ordered
from ledger.queue import Queue
from ledger.records import Ticket, TicketState

JOBS = tuple(f"j{number}" for number in range(12))

puts = st.builds(
    lambda job, create, priority, state: Kept(job, Ticket(priority=priority, state=state), create, create),
    st.sampled_from(JOBS),
    st.integers(1, 9),
    st.integers(-1, 1),
    st.sampled_from(TicketState),
)
changes = st.lists(st.one_of(puts, st.sampled_from(JOBS)), max_size=60)
"""A ticket is put; a name is that of a job whose ticket goes."""


def place(ticket: Kept[Ticket]) -> tuple[int, int, str]:
    return (-ticket.value.priority, ticket.create, ticket.name)


def age(ticket: Kept[Ticket]) -> tuple[int, str]:
    return (ticket.create, ticket.name)


@given(changes)
def test_the_queue_is_what_sorting_all_tickets_gives(changes: Sequence[Kept[Ticket] | str]) -> None:
    queue, there = Queue(), dict[str, Kept[Ticket]]()
    for change in changes:
        if isinstance(change, str):
            queue = queue.without(change)
            there.pop(change, None)
        else:
            queue = queue.put(change)
            there[change.name] = change
        waiting = [one for one in there.values() if one.value.state is TicketState.WAITING]
        assert list(queue.waiting.values()) == sorted(waiting, key=place)
        assert list(queue.by_age.values()) == sorted(waiting, key=age)
        assert [queue.ahead(one) for one in sorted(waiting, key=place)] == list(range(len(waiting)))
        assert set(map(place, queue.granted)) == {
            place(one) for one in there.values() if one.value.state is TicketState.GRANTED
        }
        assert queue.in_order() == tuple(sorted(there.values(), key=place))
        assert len(queue) == len(there) and all(queue.get(job) == there.get(job) for job in JOBS)


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=200), st.sampled_from((2, 3, 8)))
@settings(max_examples=200)
def test_an_ordered_map_of_small_blocks_is_a_sorted_dict(steps: Sequence[tuple[int, bool]], block: int) -> None:
    with patch.object(ordered, "BLOCK", block):
        found, model = Ordered[int, str](), dict[int, str]()
        for number, (key, put) in enumerate(steps):
            found = found.put(key, str(number)) if put else found.without(key)
            if put:
                model[key] = str(number)
            else:
                model.pop(key, None)
        keys = sorted(model)
        assert list(found) == keys and list(found.values()) == [model[key] for key in keys]
        assert len(found) == len(model)
        for key in range(-1, 62):
            assert found.get(key) == model.get(key)
            assert found.rank(key) == sum(1 for one in keys if one < key)


def test_a_picture_of_a_map_stays_as_it_was() -> None:
    before = Ordered[int, int]()
    for key in range(1000):
        before = before.put(key, key)
    after = before.put(500, -1).without(0).put(1000, 1000)
    assert list(before) == list(range(1000)) and before.get(500) == 500
    assert list(after) == list(range(1, 1001)) and after.get(500) == -1


@pytest.mark.parametrize("served", [0, 9_900], ids=["it has grown", "it has been served"])
def test_a_change_copies_little_of_a_long_queue(served: int) -> None:
    queue = Queue()
    for number in range(10_000):
        queue = queue.put(Kept(f"j{number}", Ticket(), number, number))
    for number in range(served):
        queue = queue.without(f"j{number}")
    after = queue.put(Kept("last", Ticket(), 20_000, 20_000))
    old = {id(block) for block in queue.waiting.blocks}
    assert sum(id(block) not in old for block in after.waiting.blocks) == 1
    assert len(queue.waiting.blocks) <= 2 + 2 * len(queue) // ordered.BLOCK
