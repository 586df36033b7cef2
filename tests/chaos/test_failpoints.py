# SPDX-License-Identifier: Apache-2.0
"""The registry of failpoints is that of the code; a point does what a file in its folder says, once."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

import coordinator
import ledger.failpoint
import tsclient.failpoint
from chaos.failpoints.registry import POINTS, Party
from chaos.failpoints.victim import restart_victim
from chaos.world import World

_ROOT = Path(coordinator.__file__).parents[1]
_PACKAGES = ("ledger", "coordinator", "nodeagent", "tsclient")
_BOTH = pytest.mark.parametrize("module", [ledger.failpoint, tsclient.failpoint], ids=lambda one: one.__name__)


def test_every_point_of_the_code_is_registered_and_the_other_way_round() -> None:
    patterns = set(_patterns())
    names = [point.name for point in POINTS]
    assert len(names) == len(set(names))
    assert [one for one in sorted(patterns) if not any(re.fullmatch(one, name) for name in names)] == []
    assert [name for name in names if not any(re.fullmatch(one, name) for one in patterns)] == []


def _patterns() -> Iterator[str]:
    """What each call of `hit` may be given, as a regular expression."""
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            if path.name == "failpoint.py":
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("hit", "failpoint.hit"):
                    yield _pattern(node.args[0])


def _pattern(name: ast.expr) -> str:
    match name:
        case ast.Constant(value=str(text)):
            return re.escape(text)
        case ast.JoinedStr(values=parts):
            return "".join(re.escape(one.value) if isinstance(one, ast.Constant) else "[a-z_]+" for one in parts)  # type: ignore[arg-type]
        case _:
            raise AssertionError(f"a failpoint without a name: {ast.unparse(name)}")


@_BOTH
def test_a_file_arms_a_point_once(module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_armed", module._source(f"@{tmp_path}"))
    module.hit("a")
    (tmp_path / "a").write_text("error", encoding="ascii")
    module.hit("b")
    with pytest.raises(module.FailpointError, match="a"):
        module.hit("a")
    module.hit("a")
    assert [one.name for one in tmp_path.iterdir()] == [".a"]


@_BOTH
def test_when_each_point_was_passed_is_noted(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_armed", module._source(f"+{tmp_path / 'passed'}"))
    before = time.monotonic_ns()
    module.hit("a")
    module.hit("b")
    lines = [line.split() for line in (tmp_path / "passed").read_text(encoding="ascii").splitlines()]
    assert [(pid, name) for _, pid, name in lines] == [(str(os.getpid()), "a"), (str(os.getpid()), "b")]
    assert before <= int(lines[0][0]) <= int(lines[1][0]) <= time.monotonic_ns()


@_BOTH
def test_nothing_is_armed_unless_the_environment_says_so(module: ModuleType) -> None:
    assert module.ENVIRONMENT not in os.environ
    assert not module.armed()
    module.hit("a")


@_BOTH
def test_a_process_is_killed_at_its_point(module: ModuleType) -> None:
    program = f"from {module.__name__} import hit; hit('other'); print('passed', flush=True); hit('here')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TIMESLICE_FAILPOINTS": "here=kill", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "passed\n"), done.stderr


class _Slow:
    """A world in which who was killed is still seen for a while."""

    names = ("replica0", "agent-n0")

    def __init__(self) -> None:
        self.looks = 0
        self.restarted: list[str] = []

    def pid(self, name: str) -> int | None:
        self.looks += 1
        return None if name == "agent-n0" and self.looks > 6 else 1

    def restart(self, name: str) -> None:
        self.restarted.append(name)


def test_who_dies_at_a_point_is_started_again_once_it_is_dead() -> None:
    world = _Slow()
    point = next(one for one in POINTS if one.party is Party.AGENT)
    assert restart_victim(cast(World, world), point) == "agent-n0"
    assert world.restarted == ["agent-n0"]
