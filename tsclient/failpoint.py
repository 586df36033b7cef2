# SPDX-License-Identifier: Apache-2.0
"""Named points in the client and its helper at which a test can make them fail.

The client is installed by itself, so this is its own: what `TIMESLICE_FAILPOINTS` means is the same in all programs.

``TIMESLICE_FAILPOINTS="agent.commit.saved=kill,agent.prepare.locked=sleep:500"``: at the named point the process
kills itself (``kill``), stops itself (``stop``), sleeps so many milliseconds (``sleep:ms``), or raises
`FailpointError` (``error``). Unset, a point costs one comparison.

``TIMESLICE_FAILPOINTS=@FOLDER``: points are armed while the program runs. One that has a file of its name in the folder
does the action that is written there, once: the process that gets there first takes the file away.

``TIMESLICE_FAILPOINTS=+FILE``: nothing is done at any point, and when each was passed is appended to the file, a line
each: nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share, the process's id, the point's name.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

ENVIRONMENT = "TIMESLICE_FAILPOINTS"


class FailpointError(Exception):
    """Raised at a point that was armed with ``error``."""


def parse(text: str) -> dict[str, str]:
    """The points and their actions. Raises ValueError when it is malformed."""
    armed = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, action = item.partition("=")
        kind, _, argument = action.partition(":")
        if not name or kind not in ("kill", "stop", "sleep", "error") or (kind == "sleep") != argument.isdigit():
            raise ValueError(f"{item!r} is no failpoint: write NAME=kill|stop|error|sleep:MILLISECONDS")
        armed[name] = action
    return armed


def take(folder: Path, name: str) -> str | None:
    """The action that the file says, whoever takes it first; None: there is none. What is taken stays as ``.NAME``."""
    taken = folder / f".{name}"
    try:
        (folder / name).rename(taken)
    except FileNotFoundError:
        return None
    return parse(f"{name}={taken.read_text(encoding='ascii')}")[name]


def note(file: int, name: str) -> None:
    """Append when the point was passed: one write, so that lines of several processes do not mix."""
    os.write(file, f"{time.monotonic_ns()} {os.getpid()} {name}\n".encode("ascii"))


def _source(text: str) -> Callable[[str], str | None] | None:
    """Where to ask what a point is armed with; None: there are no points."""
    if text.startswith("@"):
        folder = Path(text[1:])
        return lambda name: take(folder, name)
    if text.startswith("+"):
        file = os.open(text[1:], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return lambda name: note(file, name)
    return parse(text).get if text else None


_armed: Callable[[str], str | None] | None = _source(os.environ.get(ENVIRONMENT, ""))


def armed() -> bool:
    """Whether any point is: for a caller whose point's name costs something to make."""
    return _armed is not None


def hit(name: str) -> None:
    """Do what the point ``name`` is armed with; nothing, as a rule."""
    if _armed is not None and (action := _armed(name)) is not None:
        _act(name, action)


def _act(name: str, action: str) -> None:
    match action.split(":"):
        case ["kill"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["stop"]:
            os.kill(os.getpid(), signal.SIGSTOP)
        case ["sleep", milliseconds]:
            time.sleep(int(milliseconds) / 1000)
        case _:
            raise FailpointError(name)
