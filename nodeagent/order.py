# SPDX-License-Identifier: Apache-2.0
"""What one directive asks of a switch, and what the switch answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from msgspec import Struct

from ledger.records import Directive, Evidence, Failure, Fault, Outcome, Process, Processes
from nodeagent.backends.base import Known

_ANSWER_SHARE = 0.85
"""The part of the time allowed after which no step is begun any more: the rest is for taking back and answering."""

_LEAST = 0.05
"""Seconds that a step is given in any case."""


class Superseded(Exception):
    """A newer directive is there: this one is given up, and what it locked is unlocked."""


class CannotKill(Exception):
    """A process resists even SIGKILL: this agent cannot answer for its devices and must give up its registration."""


class Order(Struct, frozen=True):
    """A directive to be carried out.

    Attributes:
        records: the process records of the group in the ledger.
        known: the processes of each job, registered or recorded.
        foreign: the node's devices that other groups have.
        parked: asks for the host bytes that parked processes of all groups have.
        deadline: `time.monotonic` seconds at which an answer is due.
        newer: set when another directive takes its place.
    """

    directive: Directive
    records: Processes
    known: Known
    foreign: frozenset[str]
    parked: Callable[[], int]
    deadline: float
    newer: asyncio.Event

    def left(self, share: float = _ANSWER_SHARE) -> float:
        """Seconds that a step may take."""
        return max((self.deadline - time.monotonic()) * share, _LEAST)

    def give_way(self) -> None:
        if self.newer.is_set():
            raise Superseded


class Answer(Struct, frozen=True):
    """What is to be acknowledged, and the process record that goes with it; None: that is left as it is."""

    outcome: Outcome
    fault: Fault = Fault.NONE
    failure: Failure = Failure.NONE
    job: str = ""
    why: str = ""
    evidence: tuple[Evidence, ...] = ()
    lost: tuple[Process, ...] = ()
    restored: bool = False
    free_bytes: int = 0
    processes: Processes | None = None
