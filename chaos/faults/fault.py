# SPDX-License-Identifier: Apache-2.0
"""What a fault is: something that is done to a victim of a world, lasts for a while, and is undone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random

from chaos.world import World


class NotPossible(Exception):
    """The fault cannot be done here; the message says why. It is for the reader, and counts as not done."""


class Party(Enum):
    """Whom a fault harms. Two faults at once do not harm the same."""

    REPLICA = "replica"
    AGENT = "agent"
    CLIENT = "client"
    ETCD = "etcd"
    NETWORK = "network"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class Harm:
    """A fault that has been done.

    Attributes:
        what: in words, with the victim.
        undo: ends it, as far as it does not end by itself.
        excused: jobs that are harmed beyond what a client has to endure: their troubles are no violation.
    """

    what: str
    undo: Callable[[], None]
    excused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault.

    Attributes:
        lasts: seconds at most until it is undone.
        begin: does it to a victim that it chooses. Raises NotPossible.
        alone: nobody knows beforehand whom it harms, so no other is done at the same time.
    """

    name: str
    party: Party
    lasts: float
    begin: Callable[[World, Random], Harm]
    alone: bool = False


def nothing() -> None:
    """The undoing of what ends by itself."""
