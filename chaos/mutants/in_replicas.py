# SPDX-License-Identifier: Apache-2.0
"""Bugs that show when a replica stands still, wakes up late, or is started again in its old place."""

from __future__ import annotations

from chaos.mutants.catch import Pytest
from chaos.mutants.edit import Edit
from chaos.mutants.mutant import Mutant

_ACQUIRE = "coordinator/serve/acquire.py"
_STREAM_TESTS = "tests/coordinator/serve/test_stream.py"

REPLICAS: tuple[Mutant, ...] = (
    Mutant(
        "ticket-for-a-session-taken-over",
        "A replica's view alone says whether it still serves a session for which it makes a ticket.",
        (
            Edit(
                _ACQUIRE,
                "take_place",
                "(modified_at(engine.keys.session(party.session), served_since),) if served_since else ()",
                "()",
            ),
        ),
        Pytest(f"{_STREAM_TESTS}::test_nor_does_it_on_a_view_that_does_not_show_that_yet"),
    ),
    Mutant(
        "asks-for-a-session-taken-over",
        "Who has been left by a session tries again and again to make its ticket.",
        (Edit(_ACQUIRE, "take_place", "        if served_since:\n", "        if False:\n"),),
        Pytest(f"{_STREAM_TESTS}::test_what_is_read_after_another_replica_took_the_session_over_makes_no_ticket"),
    ),
    Mutant(
        "repeated-yield-is-a-loss",
        "A yield that is repeated after others have had their turns is told as a lost turn.",
        (Edit("tsclient/session.py", "Session._on_refused", " and entry.unanswered and ", " and False and "),),
        Pytest("tests/tsclient/test_session.py::test_a_repeated_yield_that_comes_after_others_turns_is_done"),
    ),
    Mutant(
        "the-dead-rank-first",
        "The registration of a replica that was started again in the same place ranks beside its former one.",
        (
            Edit(
                "coordinator/apply/hedge.py",
                "serving",
                "    return {kept.name: kept.create for kept in newest.values()}",
                "    return {kept.name: kept.create for kept in replicas.values()}",
            ),
        ),
        Pytest("tests/coordinator/apply/test_hedge.py"),
    ),
    Mutant(
        "held-back-without-end",
        "Two slow transactions put off for seconds whoever is to act for a replica that has died.",
        (
            Edit(
                "coordinator/apply/hedge.py",
                "Latency.hold_back",
                "min(max(LEAST_STEP, 4 * self.p99()), MOST_STEP)",
                "max(LEAST_STEP, 4 * self.p99())",
            ),
        ),
        Pytest("tests/coordinator/apply/test_hedge.py"),
    ),
)
