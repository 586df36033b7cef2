# SPDX-License-Identifier: Apache-2.0
"""What a simulated job reports, a JSON object a line. Times are ns of CLOCK_MONOTONIC, as in the devices' log."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class Ready:
    """It has a session, and waits to be told to run."""

    mono: int


@dataclass(frozen=True, slots=True)
class Asked:
    """It wants a turn."""

    mono: int


@dataclass(frozen=True, slots=True)
class Granted:
    """It has one, after ``waited`` seconds."""

    mono: int
    token: int
    waited: float
    restored: bool


@dataclass(frozen=True, slots=True)
class Yielded:
    """It has given it back, and began to at ``yielding``.

    ``intact``: before the first and after the last kernel every byte was as it must be.
    """

    mono: int
    token: int
    asked: int
    granted: int
    kernels: int
    intact: bool
    yielding: int = 0


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that a job should not have to see. ``reason`` is the library's, or WORKER_LOST."""

    mono: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Rested:
    """The time it was told to run for is over, and it holds nothing."""

    mono: int


Line = Ready | Asked | Granted | Yielded | Trouble | Rested

_KINDS: dict[str, type[Line]] = {one.__name__.lower(): one for one in (Ready, Asked, Granted, Yielded, Trouble, Rested)}


def to_json(line: Line) -> str:
    """One line, without its end."""
    return json.dumps({"event": type(line).__name__.lower(), **asdict(line)})


def from_json(text: str) -> Line | None:
    """None for a line that is none of these, as a traceback's."""
    if not text.startswith("{"):
        return None
    values = json.loads(text)
    kind = _KINDS[values.pop("event")]
    return kind(**{one.name: values[one.name] for one in fields(kind)})
