# SPDX-License-Identifier: Apache-2.0
"""The stories of tests/gpu on the simulated device: what they assume of the whole system holds without a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.processes import Child
from nodeagent.backends.sim.driver import SimulatedDriver
from nodeagent.backends.sim.faults import FaultKind
from tests.gpu import stories
from tests.gpu.rig import WITHIN, Bench, Rig

SIZE = 8 << 30
DEVICE = "SIM-0"


@pytest.fixture
def rig(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One simulated device that holds one job and a bit, never two."""
    socket = tmp_path_factory.mktemp("s") / "d"
    options = ("--socket", str(socket), "--log", str(tmp_path / "events"), "--capacity", str(12 << 30))
    device = Child("device", ("-m", "nodeagent.backends.sim.device", *options), tmp_path / "device.log", ready="serve")
    device.start()
    try:
        device.wait_ready(WITHIN)
        agent = ("--backend", "sim", "--sim-socket", str(socket), "--host-memory", str(1 << 40))
        environment = {"SIM_SOCKET": str(socket), "SIM_DEVICE": DEVICE}
        with Rig(Bench("sim", (DEVICE,), agent, environment), tmp_path / "rig") as one:
            yield one
    finally:
        device.kill()


@contextlib.contextmanager
def obstacle(rig: Rig, job: str) -> Iterator[None]:
    """A process that the device's check refuses, as one with NCCL."""
    SimulatedDriver(Path(rig.bench.environment["SIM_SOCKET"])).fault(FaultKind.NCCL, job=job)
    environment = {**rig.belongs_to(job), "SOCKET": rig.bench.environment["SIM_SOCKET"]}
    code = (
        "import os, sys, pathlib; from nodeagent.backends.sim.workload import SimulatedWorkload as W; "
        f"w = W(pathlib.Path(os.environ['SOCKET'])); w.attach('{DEVICE}', b'x'); print('on', flush=True); "
        "sys.stdin.read()"
    )
    child = Child(
        "unmovable-process", ("-c", code), rig.folder / "unmovable-process.log", environment=environment, ready="on"
    )
    child.start()
    try:
        child.wait_ready(WITHIN)
        yield
    finally:
        child.kill()


def test_ten_switches_with_training_between_them(rig: Rig) -> None:
    a, b = rig.job("job-a", SIZE), rig.job("job-b", SIZE)
    found = stories.take_turns(rig, (a, b), 5)
    stories.show("simulated device", found, (a, b))
    assert len(found) >= 10
    stories.agent_dies(rig, b, a, "agent.commit.begun")
    stories.agent_dies(rig, b, a, "agent.commit.saved")
    stories.holder_dies(rig, a, b)


def test_a_job_that_cannot_be_moved_keeps_the_device_and_the_other_its_place(rig: Rig) -> None:
    b = rig.job("job-b", SIZE)
    b.do("turns 1")
    stories.refuses(rig, b, obstacle, "NCCL")
