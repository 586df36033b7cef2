# SPDX-License-Identifier: Apache-2.0
"""Named points in the program at which a test can make it fail.

``TIMESLICE_FAILPOINTS="agent.commit.saved=kill,agent.prepare.locked=sleep:500"``: at the named point the process
kills itself (``kill``), stops itself (``stop``), sleeps so many milliseconds (``sleep:ms``), or raises
`FailpointError` (``error``). Unset, a point costs one lookup in an empty table.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping

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


_armed: Mapping[str, str] = parse(os.environ.get(ENVIRONMENT, ""))


def hit(name: str) -> None:
    """Do what the point ``name`` is armed with; nothing, as a rule."""
    if _armed and name in _armed:
        _act(name, _armed[name])


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
