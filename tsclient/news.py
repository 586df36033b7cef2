# SPDX-License-Identifier: Apache-2.0
"""What a session has to say to those who use it. `key` names the acquire, and the turn that comes of it."""

from __future__ import annotations

from dataclasses import dataclass

from tsclient.errors import LockLost, TimesliceError
from tsclient.progress import Progress


@dataclass(frozen=True, slots=True)
class Grant:
    """One group's part of a granted acquire.

    Attributes:
        restored: processes of the job were brought back for it.
        lost: how many of its processes were gone by then.
    """

    group: str
    token: int
    restored: bool = False
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is open, or open again."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A stream has ended, or could not be made. Nobody has to do anything; it says why an open takes long."""

    error: TimesliceError


@dataclass(frozen=True, slots=True)
class Ended:
    """No stream is wanted any more: closed (no error), or impossible."""

    error: TimesliceError | None


@dataclass(frozen=True, slots=True)
class Granted:
    key: int
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The acquire or yield that a caller waits for has failed."""

    key: int
    error: TimesliceError


@dataclass(frozen=True, slots=True)
class GivenBack:
    """A yield is confirmed, or the ticket has gone in another way.

    Attributes:
        waiters: how many waited at that moment, in all the groups; None: not known.
    """

    key: int
    waiters: int | None


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Nothing of that acquire is left on the server."""

    key: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A held turn is over; final."""

    key: int
    error: LockLost


@dataclass(frozen=True, slots=True)
class Moved:
    """Something to tell the caller while it waits."""

    key: int
    progress: Progress


OfOne = Granted | Failed | GivenBack | Withdrawn | Lost | Moved
News = Opened | Trouble | Ended | OfOne
