# SPDX-License-Identifier: Apache-2.0
"""The command line: what it asks for, what it prints, and how it fails."""

from __future__ import annotations

import json
import sys
from importlib.metadata import EntryPoint

import pytest

from tests.tsclient.fake_coordinator import FakeCoordinator
from timeslice_proto.v1 import records_pb2
from tsclient.cli import main as command
from tsclient.cli import show
from tsclient.cli.exits import MEANING, Exit


@pytest.fixture(autouse=True)
def endpoints(coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMESLICE_ENDPOINTS", ",".join(coordinator.endpoints))


def run(*arguments: str) -> int:
    return command.main(arguments)


def test_groups_as_a_table(coordinator: FakeCoordinator, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("get", "groups") == Exit.DONE
    assert capsys.readouterr().out.splitlines() == [
        "GROUP  PHASE  HOLDER  RESIDENT  TOKEN  WAITING  NOTE",
        "g      idle   -       unknown   100    0        serving",
    ]


def test_groups_as_json_in_the_form_of_the_messages(
    coordinator: FakeCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("get", "groups", "-o", "json") == Exit.DONE
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert groups == [{"name": "g", "note": "serving", "turn": {"token": "100"}}]


def test_a_queue_in_its_order(coordinator: FakeCoordinator, capsys: pytest.CaptureFixture[str]) -> None:
    coordinator.stranger()
    assert run("get", "queue", "g") == Exit.DONE
    assert capsys.readouterr().out.splitlines()[1].split() == ["0", "other", "waiting", "0", "stranger"]


def test_watching_shows_each_change(coordinator: FakeCoordinator, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("get", "groups", "--watch", "-o", "json") == Exit.DONE
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("deleted", False) for line in lines] == [False, True]


def test_watching_a_queue_shows_it_at_each_change(
    coordinator: FakeCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("get", "queue", "g", "--watch", "-o", "json") == Exit.DONE
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_job_is_declared_sound_by_force_only_where_that_is_said(coordinator: FakeCoordinator) -> None:
    assert run("unquarantine", "g", "a") == Exit.DONE
    assert run("unquarantine", "g", "a", "--force") == Exit.DONE
    assert coordinator.log == ["unquarantine g a", "unquarantine g a by force"]


def test_a_group_is_put_as_it_is_written(coordinator: FakeCoordinator) -> None:
    line = "group put x --node n1=A,B --node n2=C --max-hold 1.5 --node-lost drop --drop-after 60"
    assert run(*line.split()) == Exit.DONE
    assert coordinator.put is not None
    assert [(n.node, list(n.devices)) for n in coordinator.put.nodes] == [("n1", ["A", "B"]), ("n2", ["C"])]
    assert coordinator.put.policy == records_pb2.Policy(
        max_hold_ms=1500, node_lost=records_pb2.NODE_LOST_POLICY_DROP, drop_after_ms=60_000
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("group", "put", "x"),
        ("group", "put", "x", "--node", "n1"),
        ("group", "put", "x", "--node", "n1="),
        ("group", "put", "x", "--node", "n1=A", "--max-hold", "0"),
        ("group", "put", "x", "--node", "n1=A", "--max-hold", "inf"),
        ("get", "everything"),
        ("no-such-command",),
        (),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == Exit.USAGE
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (("pause", "x"), Exit.NOT_FOUND, "timeslice get groups"),
        (("resume", "g"), Exit.FAILED, "UNIMPLEMENTED"),
        (("get", "groups", "--endpoints", "127.0.0.1:1"), Exit.UNAVAILABLE, "127.0.0.1:1"),
        (("get", "groups", "--endpoints", "nonsense"), Exit.USAGE, "host:port"),
        (("get", "groups", "--timeout", "0"), Exit.USAGE, "--timeout"),
    ],
)
def test_an_error_is_one_line_with_what_to_do(
    arguments: tuple[str, ...], status: Exit, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert text in printed.err


def test_another_endpoint_is_asked_where_one_is_away(coordinator: FakeCoordinator) -> None:
    coordinator.stop_replica(0)
    assert run("pause", "g") == Exit.DONE
    assert coordinator.log == ["pause"]


def test_every_command_has_examples_in_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    lock = ["run", "acquire", "yield", "status"]
    own = ["", *lock, "get", "group", "pause", "resume", "evict", "unquarantine", "drain-node"]
    below = ["get groups", "get queue", "get nodes", "get jobs", "group put", "group delete"]
    for name in own + below:
        with pytest.raises(SystemExit) as ended:
            run(*name.split(), "--help")
        assert ended.value.code == 0
        assert f"examples:\n  timeslice {name}".rstrip() in capsys.readouterr().out, name


def test_the_exit_statuses_are_in_the_help() -> None:
    text = command.build_parser(["--help"]).format_help()
    assert all(f"{status:>3}  {meaning}" in text for status, meaning in MEANING.items())


def test_a_command_of_another_package_is_found_by_its_entry_point(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [
        EntryPoint("there", "tests.tsclient.extra_command:register", command.GROUP),
        EntryPoint("away", "no_such_package.command:register", command.GROUP),
    ]
    monkeypatch.setattr(command, "entry_points", lambda group: entries)
    assert run("there", "7") == 7
    assert run("away", "--with", "options") == Exit.FAILED
    assert "no_such_package" in capsys.readouterr().err
    assert "no_such_package is missing" in command.build_parser([]).format_help()


def test_a_command_of_ones_own_loads_no_other_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tests.tsclient.extra_command", raising=False)
    entry = EntryPoint("there", "tests.tsclient.extra_command:register", command.GROUP)
    monkeypatch.setattr(command, "entry_points", lambda group: [entry])
    assert run("pause", "g") == Exit.DONE
    assert "tests.tsclient.extra_command" not in sys.modules


def test_a_table_without_rich_is_plain_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    show.print_table(("A", "LONG"), [(1, "x"), ("long", 2)])
    assert capsys.readouterr().out == "A     LONG\n1     x\nlong  2\n"
