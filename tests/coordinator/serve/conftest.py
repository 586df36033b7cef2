# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.coordinator.serve.process import coordinator_process
from tests.coordinator.serve.world import World
from tests.support.etcd_source import TestEtcd

__all__ = ["coordinator_process", "world"]


@pytest.fixture
async def world(etcd: TestEtcd, prefix: bytes) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        yield World(etcd.endpoints, prefix.decode(), stack)
