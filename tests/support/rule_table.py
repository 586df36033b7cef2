# SPDX-License-Identifier: Apache-2.0
"""The table of the protocol's rules and their tests, from the tests' own names.

`python -m tests.support.rule_table` writes it into docs/protocol.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOC = ROOT / "docs" / "protocol.md"
MARK = "<!-- the table below is written by `python -m tests.support.rule_table` -->\n"
REQUIRED = frozenset({*range(1, 25), 26, 27, *range(33, 39)})
"""The rules that this version carries out."""

_TEST = re.compile(r"^\s*(?:async )?def (test_rules?_(\d+)(?:_and_(\d+))*\w*)\(", re.MULTILINE)


def tests_by_rule() -> dict[int, list[tuple[str, str]]]:
    """For each rule the tests whose names begin with it: (file, name)."""
    found: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for match in _TEST.finditer(path.read_text()):
            name = match.group(1)
            numbers = re.match(r"test_rules?_(\d+(?:_and_\d+)*)", name)
            assert numbers is not None
            for number in numbers.group(1).split("_and_"):
                found[int(number)].append((path.relative_to(ROOT / "tests").as_posix(), name))
    return dict(found)


def table() -> str:
    lines = ["", "| rule | tests |", "|---|---|"]
    for rule, tests in sorted(tests_by_rule().items()):
        by_file: defaultdict[str, list[str]] = defaultdict(list)
        for file, name in tests:
            by_file[file].append(f"`{name}`")
        cells = (f"*{file}*: {', '.join(names)}" for file, names in sorted(by_file.items()))
        lines.append(f"| {rule} | {'; '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    text = DOC.read_text()
    DOC.write_text(text[: text.index(MARK) + len(MARK)] + table())


if __name__ == "__main__":
    main()
