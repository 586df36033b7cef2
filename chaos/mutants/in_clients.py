# SPDX-License-Identifier: Apache-2.0
"""Bugs in the client's session."""

from __future__ import annotations

from chaos.mutants.catch import Pytest, schedules
from chaos.mutants.edit import Edit
from chaos.mutants.mutant import Mutant

_SESSION = "tsclient/session.py"
_PROPERTY = schedules("test_session.py")

CLIENTS: tuple[Mutant, ...] = (
    Mutant(
        "proof-from-the-answer",
        "The proof of the lease is counted from when a beat was answered, not from when it was sent.",
        (
            Edit(_SESSION, "Session.event", "self._on_beat(event.beat)", "self._on_beat(now, event.beat)"),
            Edit(_SESSION, "Session._on_beat", "def _on_beat(self, beat:", "def _on_beat(self, now: float, beat:"),
            Edit(_SESSION, "Session._on_beat", "sent + self._ttl", "now + self._ttl"),
        ),
        _PROPERTY,
        fast=True,
    ),
    Mutant(
        "holder-believes-on",
        "A held turn is believed in past the proof's end.",
        (
            Edit(
                _SESSION,
                "Session._lapse",
                "if entry.stage is Stage.HELD:",
                "if False:",
            ),
        ),
        _PROPERTY,
        fast=True,
    ),
    Mutant(
        "late-proof-saves",
        "An answer that comes after the proof's end is looked at before the end is.",
        (Edit(_SESSION, "Session.event", "        self._lapse(now)\n", ""),),
        _PROPERTY,
        fast=True,
    ),
    Mutant(
        "ghost-ticket",
        "An acquire that its caller gave up is forgotten without a cancel, and still named as wanted.",
        (
            Edit(_SESSION, "Session._withdraw", "if entry.known:", "if False:"),
            Edit(
                "tsclient/session_messages.py",
                "beating",
                "wanted=[entry.sequence for entry in entries if entry.stage in _WANTED],",
                "wanted=list(range(1, last_sequence + 1)),",
            ),
        ),
        _PROPERTY,
        "Either alone is made good by the other: what is not cancelled is pruned by the next beat.",
        fast=True,
    ),
    Mutant(
        "anybody-ends-a-session",
        "What is no coordinator, and has the port of a dead replica, ends a session that is open.",
        (Edit(_SESSION, "Session.disconnected", "if not self._id:", "if True:"),),
        Pytest("tests/tsclient/test_session.py::test_what_is_no_coordinator_ends_no_session_that_is_open"),
        fast=True,
    ),
    Mutant(
        "stand-in-gives-up",
        "A lost turn that was refused its place in the queue asks for no other: an owner that is blocked on the device "
        "stays so.",
        (Edit(_SESSION, "Session._on_refused", "if entry.recovers is not None:", "if False:"),),
        Pytest(
            "tests/tsclient/test_session.py::test_a_lost_turn_that_is_refused_its_place_asks_for_another_after_a_while"
        ),
        fast=True,
    ),
)
