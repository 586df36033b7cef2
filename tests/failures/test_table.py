# SPDX-License-Identifier: Apache-2.0
"""docs/failures.md names what there is: every test, scenario and planted bug in it, and no row without each."""

from __future__ import annotations

import ast
import re

import pytest

from chaos.mutants.catalog import ALL as MUTANTS
from chaos.scenarios import ALL as SCENARIOS
from tests.nodeagent.simnode import ROOT

ROW = re.compile(r"^\| ([LD]\d+) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
ROWS = {row[1]: (row[4], row[5]) for row in ROW.finditer((ROOT / "docs" / "failures.md").read_text(encoding="utf-8"))}
NAMED = re.compile(r"`([^`]+)`")


def test_no_kind_is_left_out() -> None:
    assert list(ROWS) == [*(f"L{number}" for number in range(1, 15)), *(f"D{number}" for number in range(1, 12))]


@pytest.mark.parametrize("kind", ROWS)
def test_what_a_row_names_is_there(kind: str) -> None:
    shown, planted = (NAMED.findall(cell) for cell in ROWS[kind])
    tests = [name.split("::") for name in shown if "::" in name]
    assert tests
    for file, test in tests:
        assert test in _functions(file), f"{file} has no {test}"
    assert {name for name in shown if "::" not in name} <= {one.name for one in SCENARIOS}
    assert planted
    assert set(planted) <= {one.name for one in MUTANTS}


def _functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return {one.name for one in tree.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}
