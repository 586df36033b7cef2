# SPDX-License-Identifier: Apache-2.0
"""The account at the end of a test session: collected = run + skipped, and the reason of each skip.

Only tests marked `gpu` may be skipped. Any other skip, of a test or of a whole module, fails the session,
so that a test can never quietly stop testing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest


@dataclass(slots=True, eq=False)
class Account:
    """A pytest plugin; one for each session."""

    collected: int = 0
    run: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    forbidden: list[str] = field(default_factory=list)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that skipped itself."""
        if report.skipped:
            self.forbidden.append(f"{report.nodeid}: {_reason(report)}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what ran and what was skipped; an expected failure has run."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self.run.discard(report.nodeid)
            self.skipped[report.nodeid] = _reason(report)
            if "gpu" not in report.keywords:
                self.forbidden.append(f"{report.nodeid}: {_reason(report)}")
        elif report.nodeid not in self.skipped:
            self.run.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a session that skipped what must run."""
        self.collected = session.testscollected
        if self.forbidden and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the account."""
        missing = self.collected - len(self.run) - len(self.skipped)
        not_reached = f" + not reached {missing}" if missing else ""
        terminalreporter.section("account")
        terminalreporter.line(
            f"collected {self.collected} = run {len(self.run)} + skipped {len(self.skipped)}{not_reached}"
        )
        for nodeid, reason in sorted(self.skipped.items()):
            terminalreporter.line(f"  skipped {nodeid}: {reason}")
        for line in self.forbidden:
            terminalreporter.line(f"  NOT ALLOWED TO BE SKIPPED {line}", red=True)


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    match report.longrepr:
        case (_, _, str(reason)):
            return reason.removeprefix("Skipped: ")
        case other:
            return str(other)
