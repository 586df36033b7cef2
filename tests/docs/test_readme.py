# SPDX-License-Identifier: Apache-2.0
"""What the README and the other pages say is so."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.world import World

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_there_is_an_example_for_threads_and_one_for_asyncio() -> None:
    assert ["asyncio" in example for example in EXAMPLES] == [False, True]
    assert all(example.count("\n") <= 15 for example in EXAMPLES)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(group="trainers") as running:
        yield running


@pytest.mark.parametrize("example", EXAMPLES, ids=["blocking", "asyncio"])
def test_the_example_runs_as_it_is(world: World, example: str) -> None:
    environment = {**os.environ, "TIMESLICE_ENDPOINTS": world.endpoints[0], "TIMESLICE_JOB_ID": "example"}
    done = subprocess.run([sys.executable, "-c", example], env=environment, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    tokens = [int(token) for token in re.findall(r"^step \d token (\d+) waited [\d.]+ s$", done.stdout, re.MULTILINE)]
    assert len(tokens) == 3
    assert tokens == sorted(set(tokens))


def test_what_is_linked_is_there() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#:]+)", page.read_text(encoding="utf-8"))]

    assert links
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


def test_what_is_to_be_made_or_run_exists() -> None:
    """The targets of `make` and the modules of `python -m` that a page names."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
    modules = set(re.findall(r"python -m ((?:bench|chaos|nodeagent|tests)(?:\.[a-z_]+)*)", text))

    assert {"demo", "test", "explore", "chaos-short", "bench"} <= named
    assert named - targets == set()
    assert {"bench", "chaos", "chaos.explore"} <= modules
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []


def test_the_folders_of_the_architecture_are_there() -> None:
    table = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Folders")[2]
    rows = re.findall(r"^\| `(\w+)/` \|(.*?)\|", table, re.MULTILINE)

    assert {folder for folder, _ in rows} >= {"ledger", "coordinator", "nodeagent", "tsclient", "chaos"}
    missing = [
        f"{folder}/{name}"
        for folder, text in rows
        for name in re.findall(r"`(\w+(?:/|\.py))`", text)
        if not (ROOT / folder / name).exists()
    ]
    assert missing == []
