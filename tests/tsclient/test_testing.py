# SPDX-License-Identifier: Apache-2.0
"""`tsclient.testing`, as the tests of a program that uses the library would."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tsclient as ts
from tests.tsclient.child import ROOT
from tests.tsclient.waiting import until
from tsclient import testing


@pytest.fixture(scope="module")
def system() -> Iterator[testing.Coordinator]:
    with testing.coordinator("mine") as running:
        yield running


def test_two_jobs_take_turns(system: testing.Coordinator) -> None:
    assert system.group == "mine"
    with system.connect("a") as a, system.connect("b") as b:
        first = a.acquire("mine", timeout=30)
        first.yield_()
        second = b.acquire("mine", timeout=30)
        assert second.token > first.token
        second.yield_()


def test_a_session_that_expires(system: testing.Coordinator) -> None:
    with system.connect("a", ttl=60) as a, system.connect("b", ttl=60) as b:
        lost = a.acquire("mine", timeout=30)
        system.expire_session("a")
        until(lambda: lost.lost)
        with pytest.raises(ts.LockLost):
            lost.check()
        b.acquire("mine", timeout=60).yield_()  # and only that one's
        with pytest.raises(LookupError):
            system.expire_session("b")
        other = b.acquire("mine", timeout=60)
        system.expire_session()
        until(lambda: other.lost)


def test_coordinators_that_stand_still(system: testing.Coordinator) -> None:
    with system.connect("a", ttl=2) as client:
        turn = client.acquire("mine", timeout=60)
        with system.freeze():
            until(lambda: turn.lost)  # no heartbeat is confirmed
        client.acquire("mine", timeout=60).yield_()


def test_a_connection_that_is_lost_for_less_than_the_time_to_live(system: testing.Coordinator) -> None:
    with system.connect("a", ttl=60) as client:
        turn = client.acquire("mine", timeout=60)
        with system.lose_connection():
            begun = time.monotonic()
            with pytest.raises(ts.Unavailable):
                ts.connect(system.endpoints, "b", 10, connect_timeout=1)
            assert time.monotonic() - begun < 30
            turn.check()
        assert turn.yield_() == 0


PROGRAM_S_TEST = """
import tsclient

def test_the_module_s_own_client_finds_it(timeslice_coordinator):
    with tsclient.accelerators(timeslice_coordinator.group, timeout=60) as turn:
        assert turn.job == "test"
"""


def test_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tsclient.testing.fixtures"]\n')
    (tmp_path / "test_it.py").write_text(PROGRAM_S_TEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "protos")])},
        cwd=tmp_path, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_without_the_system_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "entry_points", lambda **_: ())
    with pytest.raises(testing.SystemNotInstalled, match="pip install timeslice-system"):
        testing.coordinator()
