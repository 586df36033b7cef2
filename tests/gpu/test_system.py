# SPDX-License-Identifier: Apache-2.0
"""The whole system on one real device: etcd, two replicas, the agent, and PyTorch jobs that train by turns."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.backends.cuda.selftest import Readiness
from tests.gpu import stories
from tests.gpu.children import GIB, MIB, Target
from tests.gpu.rig import Bench, Obstacle, Rig

SIZE = 8 * GIB
SMALL = 2 * GIB


@pytest.fixture
def rig(node: Readiness, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """The system around the first device. Its logs go to $TIMESLICE_GPU_LOGS, if that is set."""
    device = node.devices[0]
    bench = Bench("cuda", (device,), ("--backend", "cuda"), {"CUDA_VISIBLE_DEVICES": device})
    with Rig(bench, Path(os.environ.get("TIMESLICE_GPU_LOGS", tmp_path)) / request.node.name) as one:
        yield one


def one_process(kind: str) -> Obstacle:
    """A process of that kind of `target.py`, which has to work at the end as at the beginning."""

    @contextlib.contextmanager
    def obstacle(rig: Rig, job: str) -> Iterator[None]:
        with Target(kind, 64 * MIB, env={**rig.belongs_to(job), **rig.bench.environment}) as target:
            target.ready()
            maps = Path(f"/proc/{target.pid}/maps").read_text(encoding="utf-8", errors="replace")
            (rig.folder / "unmovable.maps").write_text(maps, encoding="utf-8")
            yield
            target.ask("step")

    return obstacle


def test_ten_switches_with_training_between_them(rig: Rig) -> None:
    jobs = rig.job("job-a", SIZE), rig.job("job-b", SIZE)
    found = stories.take_turns(rig, jobs, 6)
    stories.show(f"{SIZE / GIB:g} GiB of tensors each", found, jobs)
    assert len(found) >= 10
    for job in jobs:
        assert all(one["account"]["tensors"] >= SIZE for one in job.said("granted"))


@pytest.mark.parametrize("failpoint", ["agent.commit.begun", "agent.commit.saved"])
def test_the_agent_dies_between_the_steps_of_a_commit(rig: Rig, failpoint: str) -> None:
    a, b = rig.job("job-a", SMALL), rig.job("job-b", SMALL)
    a.do("turns 1")
    stories.agent_dies(rig, b, a, failpoint)


def test_the_agent_dies_while_the_driver_saves(rig: Rig) -> None:
    a, b = rig.job("job-a", SMALL), rig.job("job-b", SIZE)
    a.do("turns 1")
    b.do("turns 1")
    stories.agent_dies_while_saving(rig, b, a, SIZE)


def test_the_holder_dies_on_the_device(rig: Rig) -> None:
    a, b = rig.job("job-a", SMALL), rig.job("job-b", SMALL)
    b.do("turns 1")
    print(f"\nfrom the holder's death to the next job's grant: {stories.holder_dies(rig, a, b):.2f} s")


@pytest.mark.parametrize(("kind", "why"), [("managed", "managed memory"), ("torch-ipc", "CUDA IPC")])
def test_a_job_that_cannot_be_moved_keeps_the_device_and_the_other_its_place(rig: Rig, kind: str, why: str) -> None:
    b = rig.job("job-b", SMALL)
    b.do("turns 1")
    print(f"\n{kind}: {stories.refuses(rig, b, one_process(kind), why)}")
