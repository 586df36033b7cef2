# SPDX-License-Identifier: Apache-2.0
"""What runs have shown, kept in a folder so that long runs can be done in pieces: a JSON object a line, one a run.

A line is written at once and whole, so that several processes can add to one file and a kill takes at most the run in
hand. Runs of one state of the code are added up; another commit, or a changed file, starts anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.scenarios.scenario import Figures, Report

FOLDER = Path(".chaos")
_FILE = "results.jsonl"
_GIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Result:
    """One run, whole or cut short.

    Attributes:
        commit: the code that ran; see `code_state`.
        began: wall clock, ISO 8601, for people.
        seconds: that it took.
        whole: it was not stopped before it had what it was to do.
    """

    scenario: str
    seed: int
    commit: str
    began: str
    seconds: float
    whole: bool
    figures: Figures
    facts: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()


class Results:
    """The runs that are kept in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / _FILE

    def add(self, result: Result) -> None:
        """Keep it. Raises OSError when it cannot be written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps(_to_json(result), separators=(",", ":")) + "\n"
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)

    def read(self) -> list[Result]:
        """All, oldest first. What a kill has left of a line is no result."""
        if not self._path.exists():
            return []
        found = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            try:
                values = json.loads(line)
            except json.JSONDecodeError:
                continue
            found.append(_from_json(values))
        return found

    def of(self, commit: str, scenario: str, seed: int | None = None) -> list[Result]:
        """Those of this code and scenario, and seed if one is named."""
        return [
            one for one in self.read() if one.commit == commit and one.scenario == scenario and seed in (None, one.seed)
        ]


def result_of(report: Report, *, commit: str, began: str, seconds: float, whole: bool) -> Result:
    """What is kept of a report."""
    return Result(
        scenario=report.scenario,
        seed=report.seed,
        commit=commit,
        began=began,
        seconds=seconds,
        whole=whole,
        figures=report.figures,
        facts=report.facts,
        violations=tuple(map(str, report.violations)),
    )


def total(results: Iterable[Result]) -> Figures:
    """Their figures together."""
    return sum((one.figures for one in results), Figures())


def code_state(folder: Path) -> str:
    """The commit checked out around ``folder``, and a mark of what is changed or new since; ``unknown`` outside git."""
    try:
        commit = _git(folder, "rev-parse", "--short=12", "HEAD").strip().decode()
        changed = _git(folder, "diff", "HEAD")
        root = Path(os.fsdecode(_git(folder, "rev-parse", "--show-toplevel").rstrip(b"\n")))
        new = _git(root, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
        for path in (root / os.fsdecode(one) for one in new if one):
            if path.is_file() and not path.is_symlink():
                changed += os.fsencode(path) + b"\0" + path.read_bytes()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{commit}-dirty-{hashlib.sha256(changed).hexdigest()[:8]}" if changed else commit


def _git(folder: Path, *arguments: str) -> bytes:
    command: Sequence[str] = ("git", "-C", str(folder), *arguments)
    return subprocess.run(command, check=True, capture_output=True, timeout=_GIT_SECONDS).stdout


def _to_json(result: Result) -> dict[str, object]:
    figures = result.figures
    return {
        "scenario": result.scenario,
        "seed": result.seed,
        "commit": result.commit,
        "began": result.began,
        "seconds": round(result.seconds, 1),
        "whole": result.whole,
        "switches": figures.switches,
        "faults": figures.faults,
        "hits": dict(figures.hits),
        "delays": [round(one, 4) for one in figures.delays],
        "facts": result.facts,
        "violations": result.violations,
    }


def _from_json(values: dict[str, object]) -> Result:
    match values:
        case {
            "scenario": str(scenario),
            "seed": int(seed),
            "commit": str(commit),
            "began": str(began),
            "seconds": int() | float() as seconds,
            "whole": bool(whole),
            "switches": int(switches),
            "faults": int(faults),
            "hits": dict(hits),
            "delays": list(delays),
            "facts": list(facts),
            "violations": list(violations),
        }:
            figures = Figures(switches, faults, hits, tuple(delays))
            return Result(scenario, seed, commit, began, seconds, whole, figures, tuple(facts), tuple(violations))
        case _:
            raise ValueError(f"no result of a run: {values}")
