# SPDX-License-Identifier: Apache-2.0
"""Key names, in both directions, and the names that may stand in them."""

from __future__ import annotations

import pytest

from ledger.errors import BadName
from ledger.keys import Keys, Kind, Place, check_device, check_name

KEYS = Keys("/x")

PLACES = [
    (KEYS.spec("g"), Place(Kind.SPEC, group="g")),
    (KEYS.turn("g"), Place(Kind.TURN, group="g")),
    (KEYS.ticket("g", "j"), Place(Kind.TICKET, group="g", name="j")),
    (KEYS.job("g", "j"), Place(Kind.JOB, group="g", name="j")),
    (KEYS.session("s"), Place(Kind.SESSION, name="s")),
    (KEYS.replica("r"), Place(Kind.REPLICA, name="r")),
    (KEYS.compaction(), Place(Kind.COMPACTION)),
    (KEYS.agent("n"), Place(Kind.AGENT, node="n")),
    (KEYS.drain("n"), Place(Kind.DRAIN, node="n")),
    (KEYS.directive("n", "g"), Place(Kind.DIRECTIVE, node="n", group="g")),
    (KEYS.ack("n", "g"), Place(Kind.ACK, node="n", group="g")),
    (KEYS.processes("n", "g"), Place(Kind.PROCESSES, node="n", group="g")),
    (KEYS.claim("n", "GPU-1"), Place(Kind.CLAIM, node="n", name="GPU-1")),
    (KEYS.registered("n", "g", "j"), Place(Kind.REGISTERED, node="n", group="g", name="j")),
]


@pytest.mark.parametrize(("key", "place"), PLACES, ids=lambda value: getattr(value, "kind", None))
def test_a_key_is_read_back_as_what_it_names(key: bytes, place: Place) -> None:
    assert KEYS.place(key) == place


def test_every_kind_has_a_key() -> None:
    assert {place.kind for _, place in PLACES} == set(Kind)


def test_all_that_an_agent_writes_is_under_its_node() -> None:
    for key, place in PLACES:
        if place.node:
            assert key.startswith(KEYS.node("n"))


@pytest.mark.parametrize("key", [b"/y/groups/g/turn", b"/x/groups/g", b"/x/groups/g/turn/more", b"/x/\xff", b"/x/"])
def test_what_is_none_of_ours_names_nothing(key: bytes) -> None:
    assert KEYS.place(key) is None


@pytest.mark.parametrize("name", ["a", "0", "a-b", "a.b_c", "a" * 63])
def test_good_names(name: str) -> None:
    assert check_name("group", name) == name


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", ".", "a/b", "a b", "a" * 64, "é", "a\n", "a\0"])
def test_bad_names(name: str) -> None:
    with pytest.raises(BadName):
        check_name("group", name)


@pytest.mark.parametrize("name", ["", "/", "a/b", "a b", "é", "a" * 129])
def test_bad_devices(name: str) -> None:
    with pytest.raises(BadName):
        check_device(name)
