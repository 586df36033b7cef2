# SPDX-License-Identifier: Apache-2.0
"""What a node lacks is found first, named, and comes with the next step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ledger.records import Device, ProcessState
from nodeagent.backends.cuda.nvml import Facts
from nodeagent.backends.cuda.selftest import Missing, Readiness, examine
from nodeagent.backends.driver import DriverError, NoContext
from tests.nodeagent.simnode import DEADLINE, ROOT

ONE, TWO = Device("GPU-1", 80 << 30), Device("GPU-2", 80 << 30)
GOOD = Facts("580.159.04", (ONE, TWO), ())
EVERYTHING = "Name:\tpython3\nCapEff:\t000001ffffffffff\n"
ALL_BUT_PTRACE = f"Name:\tpython3\nCapEff:\t{0x1FFFFFFFFFF & ~(1 << 19):016x}\n"


@dataclass(frozen=True, slots=True)
class FakeNvml:
    told: Facts | DriverError

    def facts(self) -> Facts:
        if isinstance(self.told, DriverError):
            raise self.told
        return self.told


@dataclass(frozen=True, slots=True)
class FakeApi:
    told: ProcessState | DriverError

    def state(self, pid: int) -> ProcessState:
        assert pid == os.getpid(), "only itself: the test must not touch anybody"
        if isinstance(self.told, DriverError):
            raise self.told
        return self.told


def run(
    facts: Facts | DriverError = GOOD,
    status: str = EVERYTHING,
    state: ProcessState | DriverError = ProcessState.RUNNING,
) -> Readiness:
    nvml: Any = lambda: FakeNvml(facts)  # noqa: E731 - a name for a stand-in of another type
    api: Any = lambda: FakeApi(state)  # noqa: E731
    return examine(nvml, api, lambda: status)


@pytest.mark.parametrize("state", [ProcessState.RUNNING, NoContext("getstate", 1, "it has no CUDA state")])
def test_a_node_that_can(state: ProcessState | DriverError) -> None:
    found = run(state=state)
    assert found == Readiness(driver="580.159.04", devices=("GPU-1", "GPU-2"))
    assert found.ready
    assert str(found) == ""


@pytest.mark.parametrize(
    ("given", "missing", "why"),
    [
        ({"facts": DriverError("init", 0, "NVML: none")}, Missing.DRIVER, "NVML: none; install the NVIDIA driver"),
        ({"facts": replace(GOOD, driver="565.57.01")}, Missing.NEWER_DRIVER, "565.57.01; install 570 or later"),
        ({"facts": replace(GOOD, driver="")}, Missing.NEWER_DRIVER, "install 570"),
        ({"facts": replace(GOOD, devices=())}, Missing.DEVICE, "all devices of the node"),
        ({"facts": replace(GOOD, mig=("GPU-1", "GPU-2"))}, Missing.NO_MIG, "nvidia-smi --mig 0"),
        ({"status": ALL_BUT_PTRACE}, Missing.PRIVILEGE, "lacks CAP_SYS_PTRACE; run it as root"),
        ({"state": DriverError("cuinit", 0, "NO_DEVICE")}, Missing.DRIVER, "cuinit: NO_DEVICE"),
    ],
    ids=lambda one: one.name if isinstance(one, Missing) else "",
)
def test_what_is_missing(given: dict[str, Any], missing: Missing, why: str) -> None:
    found = run(**given)
    assert found.missing is missing
    assert why in found.why
    assert not found.ready
    assert str(found) == f"{missing.name}: {found.why}"


def test_what_is_to_be_mended_first_is_said_first() -> None:
    old = replace(GOOD, driver="535.1", devices=())
    broken = DriverError("cuinit", 0, "x")
    assert run(old, ALL_BUT_PTRACE, broken).missing is Missing.NEWER_DRIVER
    assert run(replace(GOOD, devices=()), ALL_BUT_PTRACE, broken).missing is Missing.DEVICE
    assert run(GOOD, ALL_BUT_PTRACE, broken).missing is Missing.PRIVILEGE


def test_the_driver_is_not_loaded_where_it_could_not_be_used() -> None:
    def never() -> Any:
        raise AssertionError("it was loaded")

    nvml: Any = lambda: FakeNvml(GOOD)  # noqa: E731
    assert examine(nvml, never, lambda: ALL_BUT_PTRACE).missing is Missing.PRIVILEGE


def test_a_device_in_mig_mode_is_left_out_beside_others() -> None:
    found = run(replace(GOOD, mig=("GPU-1",)))
    assert (found.ready, found.devices) == (True, ("GPU-2",))


def test_as_a_command_it_says_so_in_json(tmp_path: Path) -> None:
    """On a node without NVML: its Python package is hidden by one that fails as on a machine without the library."""
    (tmp_path / "pynvml.py").write_text("raise ImportError('hidden')\n")
    path = f"{tmp_path}:{ROOT}:{ROOT / 'protos'}"
    done = subprocess.run(
        [sys.executable, "-m", "nodeagent.backends.cuda.selftest"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        timeout=DEADLINE,
    )
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["ready"], answer["missing"]) == (1, False, "DRIVER")
    assert "hidden" in answer["why"]
