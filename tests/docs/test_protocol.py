# SPDX-License-Identifier: Apache-2.0
"""docs/protocol.md states every rule that the code carries out, and lists the tests that there are."""

from __future__ import annotations

import re

from tests.support.rule_table import BESIDES, DOC, MARK, REQUIRED, by_rule, table


def test_every_rule_has_a_statement_and_a_test() -> None:
    stated = {int(number) for number in re.findall(r"^(\d+)\. ", DOC.read_text(), re.MULTILINE)}
    assert stated >= REQUIRED
    assert set(by_rule()) >= REQUIRED


def test_the_table_of_tests_is_current() -> None:
    written = DOC.read_text()
    assert written[written.index(MARK) + len(MARK) :] == table(), "run: python -m tests.support.rule_table"


def test_every_test_that_the_table_names_is_there() -> None:
    there = {name for tests in by_rule().values() for _, name in tests}
    assert set(BESIDES) <= there
