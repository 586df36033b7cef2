# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.nodeagent.director import Director, director
from tests.nodeagent.simnode import SimNode, sim_node
from tests.support.etcd_source import TestEtcd


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SimNode]:
    """A simulated node with two devices of 80 GiB."""
    with sim_node(tmp_path) as one:
        yield one


@pytest.fixture
async def boss(etcd: TestEtcd, prefix: bytes, node: SimNode) -> AsyncIterator[Director]:
    """Plays the coordinator for an agent on the simulated node; the agent is started by the test."""
    async with director(etcd.endpoint, prefix, node) as one:
        yield one
