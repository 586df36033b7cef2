# SPDX-License-Identifier: Apache-2.0
"""What a simulated job reports, a JSON object a line. Times are ns of CLOCK_MONOTONIC, as in the devices' log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields


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
    """It has one, after ``waited`` seconds.

    ``tokens``: by group, of a turn in several; there ``token`` is that of the first.
    """

    mono: int
    token: int
    waited: float
    restored: bool
    tokens: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Yielded:
    """It has given it back, and began to at ``yielding``.

    ``intact``: before the first and after the last kernel every byte was as it must be. ``tokens``: as of the grant.
    """

    mono: int
    token: int
    asked: int
    granted: int
    kernels: int
    intact: bool
    yielding: int = 0
    tokens: Mapping[str, int] = field(default_factory=dict)


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
    """One line, without its end. Of a turn in one group it names no tokens by group."""
    values = {name: value for name, value in asdict(line).items() if value != {}}
    return json.dumps({"event": type(line).__name__.lower(), **values})


def from_json(text: str) -> Line | None:
    """None for a line that is none of these, as a traceback's."""
    if not text.startswith("{"):
        return None
    values = json.loads(text)
    kind = _KINDS[values.pop("event")]
    names = {one.name for one in fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in names})
