# SPDX-License-Identifier: Apache-2.0
"""Two runs beside each other, and what was promised."""

from __future__ import annotations

import json

from bench import report
from bench.figures import Check, Found, Row
from bench.machine import Machine, describe

_MACHINE = Machine("a processor", 2, 1 << 30, "6.1", "3.11", "3.5.16", {}, "abc", 0.5)


def _found(milliseconds: float) -> Found:
    row = Row("d", "hand-off", {"x_bare": milliseconds / 2, "p50_ms": milliseconds, "count": 9})
    return Found((row,), (Check("d", "hand-off", milliseconds, 10.0),), ("a note",))


def _json(milliseconds: float, machine: Machine = _MACHINE) -> dict[str, object]:
    found: dict[str, object] = json.loads(report.to_json(machine, {"rounds": 9}, [_found(milliseconds)], 1.0))
    return found


def test_the_json_has_the_machine_the_figures_and_whether_promises_hold() -> None:
    found = _json(20.0)
    assert found["machine"] == {
        "processor": "a processor", "cores": 2, "memory_bytes": 1 << 30, "kernel": "6.1", "python": "3.11",
        "etcd": "3.5.16", "packages": {}, "commit": "abc", "load": 0.5,
    }  # fmt: skip
    assert found["rows"] == [{"part": "d", "name": "hand-off", "figures": {"x_bare": 10.0, "p50_ms": 20.0, "count": 9}}]
    assert [check["holds"] for check in found["checks"]] == [False]


def test_two_runs_are_set_beside_each_other_figure_by_figure() -> None:
    (line,) = report.compare(_json(20.0), _json(10.0))
    assert "p50_ms 20 → 10 (0.50x)" in line
    assert "count" not in line


def test_runs_of_different_machines_are_said_to_be_such() -> None:
    other = Machine("another", 2, 1 << 30, "6.1", "3.11", "3.5.16", {}, "abc", 0.5)
    assert next(iter(report.compare(_json(20.0), _json(10.0, other)))).startswith("The machines differ")


def test_a_promise_holds_up_to_its_limit_or_from_it_on() -> None:
    assert Check("d", "", 1.3, 1.3).holds
    assert not Check("d", "", 1.31, 1.3).holds
    assert Check("f", "", 0.7, 0.7, at_least=True).holds
    assert not Check("f", "", 0.69, 0.7, at_least=True).holds


def test_the_table_has_a_heading_for_each_kind_of_row() -> None:
    rows = [Row("a", "one", {"p50_ms": 1.0}), Row("a", "two", {"p50_ms": 2.5}), Row("f", "three", {"per_s": 1234.0})]
    lines = [line.split() for line in report.table(rows)]
    assert lines == [["p50_ms"], ["a", "one", "1"], ["a", "two", "2.50"], ["per_s"], ["f", "three", "1234"]]


def test_a_run_is_shown_as_it_stands_in_a_document() -> None:
    machine, *lines = report.markdown(_json(20.0))
    assert machine.startswith("a processor, 2 cores (load 0.5 before)")
    assert lines == [
        "",
        "| | x_bare | p50_ms | count |",
        "|---|---|---|---|",
        "| hand-off | 10 | 20 | 9 |",
        "",
        "- a note",
    ]


def test_this_machine_is_described() -> None:
    found = describe("3.5.16")
    assert found.cores >= 1
    assert found.memory_bytes > 1 << 27
    assert found.packages["grpcio"]
