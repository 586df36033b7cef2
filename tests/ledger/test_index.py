# SPDX-License-Identifier: Apache-2.0
"""The typed index: order of the queue, and what a malformed value does to its group alone."""

from __future__ import annotations

from ledger.codec import encode
from ledger.etcd import KeyValue
from ledger.index import Index
from ledger.keys import Keys
from ledger.records import Ticket, Turn

KEYS = Keys("/x")


def kv(key: bytes, value: bytes, create: int = 1, mod: int = 0, lease: int = 0) -> KeyValue:
    return KeyValue(key, value, create, mod or create, 1, lease)


def put_ticket(index: Index, job: str, create: int, priority: int = 0, mod: int = 0) -> None:
    index.put(kv(KEYS.ticket("g", job), encode(Ticket(priority=priority)), create, mod))


def test_tickets_are_in_order_of_priority_then_create_revision_then_key() -> None:
    index = Index(KEYS)
    put_ticket(index, "c", 30)
    put_ticket(index, "b", 20)
    put_ticket(index, "urgent", 40, priority=1)
    put_ticket(index, "a2", 10)
    put_ticket(index, "a1", 10)
    assert [one.name for one in index.queue("g").in_order()] == ["urgent", "a1", "a2", "b", "c"]
    assert [one.name for one in index.queue("g").waiting.values()] == ["urgent", "a1", "a2", "b", "c"]


def test_a_rewritten_ticket_keeps_its_place_and_a_new_one_of_the_same_job_does_not() -> None:
    index = Index(KEYS)
    put_ticket(index, "a", 10)
    put_ticket(index, "b", 20)
    put_ticket(index, "a", 10, mod=30)
    assert [one.name for one in index.queue("g").in_order()] == ["a", "b"]
    index.delete(KEYS.ticket("g", "a"))
    put_ticket(index, "a", 40)
    assert [one.name for one in index.queue("g").in_order()] == ["b", "a"]


def test_a_malformed_value_is_an_error_of_its_group_until_it_is_mended() -> None:
    index = Index(KEYS)
    index.put(kv(KEYS.turn("g"), encode(Turn(epoch=5))))
    index.put(kv(KEYS.turn("other"), encode(Turn(epoch=6))))
    index.put(kv(KEYS.turn("g"), b"nonsense", mod=2))
    assert index.errors(group="g")
    assert not index.errors(group="other")
    assert "g" not in index.turns
    index.put(kv(KEYS.turn("g"), encode(Turn(epoch=7)), mod=3))
    assert not index.errors(group="g")
    assert index.turns["g"].value.epoch == 7


def test_a_malformed_agent_is_an_error_of_its_node() -> None:
    index = Index(KEYS)
    index.put(kv(KEYS.agent("n"), b"{}"))
    assert index.errors(node="n")
    assert not index.errors(node="m")
    index.delete(KEYS.agent("n"))
    assert not index.errors(node="n")


def test_nothing_is_kept_of_what_is_gone() -> None:
    index = Index(KEYS)
    put_ticket(index, "a", 10)
    index.put(kv(KEYS.job("g", "a"), b'{"version":"1"}'))
    index.put(kv(KEYS.claim("n", "d"), b'{"version":"1","group":"g"}'))
    for key in (KEYS.ticket("g", "a"), KEYS.job("g", "a"), KEYS.claim("n", "d")):
        index.delete(key)
    assert not index.queue("g")
    assert not index.jobs
    assert not index.claims
