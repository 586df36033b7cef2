# SPDX-License-Identifier: Apache-2.0
"""The processes that a process has started: helpers are known by what they run."""

from __future__ import annotations

from pathlib import Path

AGENT_HELPER = "nodeagent.helper_main"
CLIENT_HELPER = "tsclient.helper.main"


def helpers(parent: int, program: str) -> list[int]:
    """The pids of ``parent``'s children that run ``program``."""
    found: list[int] = []
    for task in _tasks(parent):
        found += [pid for pid in _children(parent, task) if program in _command(pid)]
    return sorted(found)


def _tasks(pid: int) -> list[str]:
    try:
        return [one.name for one in Path(f"/proc/{pid}/task").iterdir()]
    except FileNotFoundError:
        return []


def _children(pid: int, task: str) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii").split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
