# SPDX-License-Identifier: Apache-2.0
"""Jobs of two ranks with NCCL, on two real devices."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ledger.ports import ReservedPorts
from nodeagent.backends.cuda.obstacles import NCCL_SETTINGS
from nodeagent.backends.cuda.selftest import Readiness
from tests.gpu import stories
from tests.gpu.children import GIB, MIB, Helper, Target
from tests.gpu.rig import Bench, Obstacle, Rig

SIZE = 2 * GIB


@pytest.fixture
def both(node: Readiness) -> tuple[str, ...]:
    """Two devices."""
    if len(node.devices) < 2:
        pytest.skip("this machine has one device, and two ranks of NCCL need two")
    return node.devices[:2]


@pytest.fixture
def rig(both: tuple[str, ...], request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """The system around both. Its logs go to $TIMESLICE_GPU_LOGS, if that is set."""
    bench = Bench("cuda", both, ("--backend", "cuda"))
    with Rig(bench, Path(os.environ.get("TIMESLICE_GPU_LOGS", tmp_path)) / request.node.name) as one:
        yield one


def ranks(settings: Mapping[str, str]) -> Obstacle:
    """Two ranks with a communicator, which has to work at the end as at the beginning."""

    @contextlib.contextmanager
    def obstacle(rig: Rig, job: str) -> Iterator[None]:
        with ReservedPorts(1) as ports:
            port = str(ports.ports[0])
        more = {**rig.belongs_to(job), **settings, "WORLD_SIZE": "2", "MASTER_PORT": port}
        with contextlib.ExitStack() as stack:
            environments = [{**more, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
            targets = [stack.enter_context(Target("nccl", 64 * MIB, env=one)) for one in environments]
            for one in targets:
                one.ready()
            yield
            for one in targets:
                one.send("reduce")
            assert [one.receive(60)["value"] for one in targets] == [2.0, 2.0]

    return obstacle


def test_default_settings_are_refused_before_anything_is_saved(rig: Rig) -> None:
    b = rig.job("job-b", SIZE)
    b.do("turns 1")
    print(f"\n{stories.refuses(rig, b, ranks({}), 'NCCL')}")


def test_with_the_three_settings_both_ranks_come_back_and_reduce(rig: Rig) -> None:
    b = rig.job("job-b", SIZE)
    b.do("turns 1")
    stories.moves(rig, b, ranks(NCCL_SETTINGS))


def test_a_process_on_two_devices_has_no_managed_memory_for_that(both: tuple[str, ...], helper: Helper) -> None:
    with Target("two-devices") as target:
        target.ready()
        before = target.ask("hash")
        refused, _ = helper.call("check", target.pid)
        assert refused == ""
        helper.call("lock", target.pid, timeout_ms=10_000)
        for step in ("checkpoint", "restore", "unlock"):
            helper.call(step, target.pid)
        assert target.ask("hash") == before
