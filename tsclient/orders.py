# SPDX-License-Identifier: Apache-2.0
"""What those who use a session ask of it. `key`, chosen by them, names the acquire from its beginning to its end."""

from __future__ import annotations

from dataclasses import dataclass

from tsclient.want import Want


@dataclass(frozen=True, slots=True)
class Acquire:
    """Ask for a turn.

    Attributes:
        slot: where the deadline of the turn is to be written.
        kill: end the process that asks, should the turn be lost.
    """

    key: int
    slot: int
    want: Want
    kill: bool = False


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It is no longer wanted, granted or not. `Withdrawn` follows."""

    key: int


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Yield the turn. `GivenBack`, `Lost` or `Failed` follows."""

    key: int


@dataclass(frozen=True, slots=True)
class Noticed:
    """The owner of a lost turn knows of it."""

    key: int


@dataclass(frozen=True, slots=True)
class Keep:
    """Said to whoever takes over a session: that turn is still held, or lost without its owner's knowledge."""

    key: int
    slot: int
    kill: bool = False
    held: bool = True


@dataclass(frozen=True, slots=True)
class Close:
    """Give everything back and end the session. `Ended` follows."""


OfOne = Acquire | GiveUp | GiveBack | Noticed | Keep
Order = OfOne | Close
