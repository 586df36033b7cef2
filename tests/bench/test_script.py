# SPDX-License-Identifier: Apache-2.0
"""What the floor replays is what was written, with names in their places."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from bench.floor.script import COMMIT_CALLS, COPIES, PREPARE_CALLS, Script, Wide, read, size
from bench.floor.writer import write
from ledger.etcd import EtcdClient, Event, EventType, KeyValue

_NAMES = {"g": "{group}", "n0": "{node}", "job-a": "{out}", "job-b": "{in}"}


def _put(revision: int, key: str, value: bytes = b'{"version":"1"}', lease: int = 0) -> Event:
    return Event(EventType.PUT, KeyValue(f"/x/{key}".encode(), value, revision, revision, 1, lease), None)


def _delete(revision: int, key: str) -> Event:
    return Event(EventType.DELETE, KeyValue(f"/x/{key}".encode(), b"", 0, revision, 0, 0), None)


_HAND_OFF = [
    _put(6, "groups/g/turn", b'{"phase":"PHASE_PREPARING"}'),
    _delete(6, "groups/g/tickets/job-a"),
    _put(6, "nodes/n0/directives/g"),
    _put(7, "nodes/n0/acks/g"),
    _put(7, "nodes/n0/processes/g"),
    _put(8, "groups/g/turn"),
    _put(8, "nodes/n0/directives/g"),
    _put(9, "nodes/n0/acks/g"),
    _put(10, "groups/g/turn"),
    _put(10, "groups/g/tickets/job-b", lease=77),
]


def test_each_revision_is_a_step_and_its_writer_is_known_by_its_keys() -> None:
    steps = read(_HAND_OFF, "/x/", _NAMES)
    assert [step.by_agent for step in steps] == [False, True, False, True, False]
    assert [step.calls for step in steps] == [0, PREPARE_CALLS, 0, COMMIT_CALLS, 0]
    assert [step.rereads for step in steps] == [0, 0, 0, 1, 0]
    assert [one.key for one in steps[0].writes] == [
        "groups/{group}/turn",
        "groups/{group}/tickets/{out}",
        "nodes/{node}/directives/{group}",
    ]
    assert steps[0].writes[0].value == {"phase": "PHASE_PREPARING"}
    assert steps[0].writes[1].value is None
    assert [one.leased for one in steps[-1].writes] == [False, True]


def test_what_others_wrote_meanwhile_is_no_part_of_it() -> None:
    others = [_put(8, "groups/other/turn"), _put(11, "sessions/77"), _put(12, "nodes/n1/acks/g")]
    assert read([*_HAND_OFF, *others], "/x/", _NAMES) == read(_HAND_OFF, "/x/", _NAMES)


def test_a_hand_off_that_was_not_one_is_refused() -> None:
    with pytest.raises(ValueError, match="3 answers"):
        read([*_HAND_OFF, _put(11, "nodes/n0/acks/g")], "/x/", _NAMES)


def test_its_size_is_that_of_what_was_written() -> None:
    steps = read(_HAND_OFF, "/x/", _NAMES)
    length = sum(len(event.kv.value) for event in _HAND_OFF)
    assert size(steps) == (5, len(_HAND_OFF), length)


def test_it_goes_to_the_floors_processes_by_a_file(tmp_path: Path) -> None:
    steps = read(_HAND_OFF, "/x/", _NAMES)
    wide = {"g": Wide(("n0", "n1"), 0.25, steps)}
    script = Script(steps[0], steps[1], steps[2], steps, steps[:3], wide)
    script.save(tmp_path / "script.json")
    assert Script.load(tmp_path / "script.json") == script


def test_where_processes_move_a_commit_copies_twice() -> None:
    assert [step.copies for step in read(_HAND_OFF, "/x/", _NAMES, moves=True)] == [0, 0, 0, COPIES, 0]
    assert [step.copies for step in read(_HAND_OFF, "/x/", _NAMES)] == [0, 0, 0, 0, 0]


async def test_what_is_a_nodes_is_written_for_each_node_of_the_group() -> None:
    client = create_autospec(EtcdClient, instance=True)
    first = read(_HAND_OFF, "/x/", _NAMES)[0]
    await write(client, first, {"group": "w", "out": "a"}, ("n0", "n1"), [], [])
    _, ops, _ = client.txn.await_args.args
    assert [op.key.decode() for op in ops] == [
        "/floor/groups/w/turn",
        "/floor/groups/w/tickets/a",
        "/floor/nodes/n0/directives/w",
        "/floor/nodes/n1/directives/w",
    ]
    assert json.loads(ops[0].value) == {"phase": "PHASE_PREPARING"}
