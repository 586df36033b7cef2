# SPDX-License-Identifier: Apache-2.0
"""The session's account adds up, and a skip that is not allowed fails a session. Each in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = """
from tests.support.account import Account
def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs an accelerator")
    config.pluginmanager.register(Account())
"""
PASSES = "def test_passes(): pass\n"
GPU = "import pytest\n@pytest.mark.gpu\ndef test_gpu(): pytest.skip('no accelerator')\n"
SKIPS = "import pytest\ndef test_skips(): pytest.skip('not today')\n"
MARKED = "import pytest\n@pytest.mark.skip(reason='marked')\ndef test_marked(): pass\n"
MODULE = "import pytest\npytest.importorskip('no_such_module_here')\ndef test_never(): pass\n"
EXPECTED = "import pytest\n@pytest.mark.xfail\ndef test_expected(): assert False\n"
FAILS = "def test_fails(): assert False\n"


def session(folder: Path, *texts: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    for i, text in enumerate(texts):
        (folder / f"test_{i}.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "/dev/null",
        f"--rootdir={folder}",
        *options,
        str(folder),
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize(
    ("texts", "code", "line"),
    [
        ((PASSES,), 0, "collected 1 = run 1 + skipped 0"),
        ((PASSES, GPU), 0, "collected 2 = run 1 + skipped 1"),
        ((PASSES, EXPECTED), 0, "collected 2 = run 2 + skipped 0"),
        ((PASSES, SKIPS), 1, "collected 2 = run 1 + skipped 1"),
        ((PASSES, MARKED), 1, "collected 2 = run 1 + skipped 1"),
        ((PASSES, MODULE), 1, "collected 1 = run 1 + skipped 0"),
        ((MODULE,), 1, "collected 0 = run 0 + skipped 0"),
        ((PASSES, FAILS), 1, "collected 2 = run 2 + skipped 0"),
    ],
)
def test_account(tmp_path: Path, texts: tuple[str, ...], code: int, line: str) -> None:
    done = session(tmp_path, *texts)
    assert done.returncode == code, done.stdout + done.stderr
    assert line in done.stdout


def test_reasons_are_shown(tmp_path: Path) -> None:
    out = session(tmp_path, GPU, SKIPS, MODULE).stdout
    assert "test_gpu: no accelerator" in out
    assert "NOT ALLOWED TO BE SKIPPED test_1.py::test_skips: not today" in out
    assert "NOT ALLOWED TO BE SKIPPED test_2.py: could not import 'no_such_module_here'" in out
    assert "NOT ALLOWED TO BE SKIPPED test_0.py" not in out


def test_a_session_that_stops_early_says_what_it_did_not_reach(tmp_path: Path) -> None:
    done = session(tmp_path, FAILS, PASSES, PASSES, options=("-x",))
    assert "collected 3 = run 1 + skipped 0 + not reached 2" in done.stdout
