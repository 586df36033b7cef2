# SPDX-License-Identifier: Apache-2.0
"""What a replica knows: by group, node and session, and what a record that cannot be read stops."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import given

from coordinator.picture import Picture
from ledger.codec import encode
from ledger.etcd import KeyValue
from ledger.keys import Keys
from ledger.records import Ack, Agent, Claim, Directive, Drain, GroupSpec, NodeDevices, Processes, Ticket, Turn
from ledger.view import Change, Changes

KEYS = Keys("/x")


class Told:
    """A picture that is told of one change after another."""

    def __init__(self) -> None:
        self.picture = Picture(KEYS)
        self._revision = 0

    def put(self, key: bytes, value: bytes, lease: int = 0) -> tuple[frozenset[str], frozenset[str]]:
        self._revision += 1
        kv = KeyValue(key, value, self._revision, self._revision, 1, lease)
        return self.picture.take(Changes(self._revision, (Change(key, kv),)))

    def gone(self, key: bytes) -> tuple[frozenset[str], frozenset[str]]:
        self._revision += 1
        return self.picture.take(Changes(self._revision, (Change(key, None),)))


def two_groups() -> Told:
    """g has d0 of node n, other has d1 of it."""
    told = Told()
    for group, device in (("g", "d0"), ("other", "d1")):
        told.put(KEYS.spec(group), encode(GroupSpec(nodes=(NodeDevices("n", (device,)),))))
        told.put(KEYS.turn(group), encode(Turn(nodes=("n",))))
        told.put(KEYS.claim("n", device), encode(Claim(group=group)))
    return told


def test_a_claim_that_cannot_be_read_stops_the_group_that_wants_the_device_alone() -> None:
    told = two_groups()
    told.put(KEYS.claim("n", "d0"), b"nonsense")
    assert told.picture.group_error("g") is not None
    assert told.picture.group_error("other") is None


def test_a_claim_that_cannot_be_read_stops_the_group_that_was_last_told_to_use_the_device() -> None:
    told = two_groups()
    told.put(KEYS.directive("n", "other"), encode(Directive(devices=("d1", "d9"))))
    told.put(KEYS.claim("n", "d9"), b"nonsense")
    assert told.picture.group_error("g") is None
    assert told.picture.group_error("other") is not None


def test_an_agent_that_cannot_be_read_stops_the_groups_of_its_node() -> None:
    told = two_groups()
    told.put(KEYS.agent("n"), b"nonsense")
    assert told.picture.group_error("g") is not None
    assert told.picture.group_error("other") is not None
    told.put(KEYS.agent("n"), encode(Agent()))
    assert told.picture.group_error("g") is None


def test_an_agents_coming_and_going_touches_the_groups_of_its_node_alone() -> None:
    told = two_groups()
    told.put(KEYS.spec("far"), encode(GroupSpec(nodes=(NodeDevices("m", ("d0",)),))))
    assert told.put(KEYS.agent("n"), encode(Agent()))[0] == {"g", "other"}
    assert told.gone(KEYS.agent("n"))[0] == {"g", "other"}


def test_a_claim_is_seen_by_the_group_that_has_it_and_by_those_that_may_want_it() -> None:
    told = two_groups()
    assert told.put(KEYS.claim("n", "d2"), encode(Claim(group="third")))[0] == {"g", "other", "third"}
    told.put(KEYS.spec("third"), encode(GroupSpec()))
    view = told.picture.group("third")
    assert view is not None
    assert view.claimed("n") == ("d2",)
    told.gone(KEYS.claim("n", "d2"))
    view = told.picture.group("third")
    assert view is not None
    assert view.claimed("n") == ()


def test_a_tickets_session_is_told_of_it_also_when_it_goes() -> None:
    told = two_groups()
    assert told.put(KEYS.ticket("g", "a"), encode(Ticket(session="s1")))[1] == {"s1"}
    assert [group for group, _ in told.picture.tickets_of("s1")] == ["g"]
    assert told.put(KEYS.ticket("g", "a"), encode(Ticket(session="s2")))[1] == {"s1", "s2"}
    assert told.picture.tickets_of("s1") == []
    assert told.gone(KEYS.ticket("g", "a"))[1] == {"s2"}
    assert told.picture.tickets_of("s2") == []


def test_a_group_that_is_gone_leaves_nothing() -> None:
    told = two_groups()
    told.put(KEYS.ticket("g", "a"), encode(Ticket(session="s")))
    for key in (KEYS.ticket("g", "a"), KEYS.turn("g"), KEYS.spec("g"), KEYS.claim("n", "d0")):
        told.gone(key)
    assert told.picture.group("g") is None
    assert told.picture.group_names() == ["other"]


def changes() -> st.SearchStrategy[tuple[bytes, bytes]]:
    """A key of two groups or two nodes, and its new value; empty: it is gone."""
    group, node, device = st.sampled_from("gh"), st.sampled_from("nm"), st.sampled_from(("d0", "d1"))
    nodes = st.lists(node, unique=True, max_size=2)
    specs = nodes.map(lambda found: encode(GroupSpec(nodes=tuple(NodeDevices(one, ("d0",)) for one in found))))
    turns = nodes.map(lambda found: encode(Turn(nodes=tuple(found))))
    fixed = st.sampled_from((Agent(), Drain(), Directive(epoch=1), Ack(epoch=2), Processes())).map(encode)
    values = {
        KEYS.spec: (specs, group),
        KEYS.turn: (turns, group),
        KEYS.claim: (group.map(lambda owner: encode(Claim(group=owner))), node, device),
        KEYS.agent: (fixed, node),
        KEYS.drain: (fixed, node),
        KEYS.directive: (fixed, node, group),
        KEYS.ack: (fixed, node, group),
        KEYS.processes: (fixed, node, group),
    }
    some = [
        st.tuples(st.builds(key, *names), st.one_of(value, st.just(b""))) for key, (value, *names) in values.items()
    ]
    return st.one_of(some)


@given(st.lists(changes(), max_size=40), st.integers(0, 3))
def test_what_is_kept_of_the_nodes_is_what_a_new_picture_shows(
    steps: Sequence[tuple[bytes, bytes]], seldom: int
) -> None:
    told, now = Told(), dict[bytes, KeyValue]()
    for number, (key, value) in enumerate(steps):
        if value:
            told.put(key, value)
            now[key] = KeyValue(key, value, number + 1, number + 1, 1, 0)
        else:
            told.gone(key)
            now.pop(key, None)
        if seldom and number % seldom and number + 1 < len(steps):
            continue  # several changes between two looks
        fresh = Picture(KEYS)
        fresh.take(Changes(number + 1, tuple(Change(key, kv) for key, kv in now.items())))
        for name in "gh":
            assert told.picture.group(name) == fresh.group(name)
