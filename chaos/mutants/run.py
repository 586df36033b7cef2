# SPDX-License-Identifier: Apache-2.0
"""Plant one bug in a private copy of the tree, and run there what has to notice it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from chaos.mutants.catch import Catch
from chaos.mutants.mutant import Mutant

TREE = Path(__file__).resolve().parents[2]
WITHIN = 600.0
"""Seconds for one check: many times what the slowest takes."""

_LEFT_OUT = shutil.ignore_patterns(".?*", "__pycache__", "*.egg-info", "build", "dist")
_SAID = 2_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What has become of one bug.

    Attributes:
        found: what noticed it said; empty: nobody noticed.
        said: the end of what the check printed, for who looks into it.
    """

    mutant: Mutant
    found: str
    said: str
    seconds: float

    @property
    def caught(self) -> bool:
        return bool(self.found)


def plant(mutant: Mutant) -> Outcome:
    """Copy the tree, plant the bug there, run the check. Raises DoesNotApply."""
    began = time.monotonic()
    with copy_of(TREE) as tree:
        for edit in mutant.edits:
            edit.apply(tree)
        status, said = _run(mutant.catch, tree)
    return Outcome(mutant, mutant.catch.noticed(status, said), said[-_SAID:], time.monotonic() - began)


def control(catch: Catch) -> str:
    """Run a check in a copy without any bug. Returns what it said if it did not pass; empty: it passed."""
    with copy_of(TREE) as tree:
        status, said = _run(catch, tree)
    return "" if catch.passed(status) else said[-_SAID:] or f"ended with {status}"


@contextmanager
def copy_of(tree: Path) -> Iterator[Path]:
    """A copy without what was built; etcd and the like are the original's."""
    with tempfile.TemporaryDirectory(prefix="timeslice-mutant-") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(tree, copy, ignore=_LEFT_OUT)
        if (tree / ".tools").exists():
            (copy / ".tools").symlink_to(tree / ".tools")
        yield copy


def _run(catch: Catch, tree: Path) -> tuple[int, str]:
    """The status and the output. A check that does not end is killed with its processes, and has noticed nothing."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'protos'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "160",
    }
    with subprocess.Popen(
        [sys.executable, *catch.command],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=WITHIN)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            return -signal.SIGKILL, f"{said}\nkilled after {WITHIN:g} s"
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, said
