# SPDX-License-Identifier: Apache-2.0
"""Clients of the session's etcd and of clusters to be broken."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from ledger.etcd import EtcdClient, channel
from tests.support.etcd_source import TestEtcd


class InOrder(random.Random):
    """Leaves the endpoints in the order given, so that a test knows which one is in use."""

    def shuffle(self, x: Any) -> None:
        """Not shuffle."""


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., EtcdClient]]:
    """Make clients, closed at the end: the arguments of EtcdClient. Endpoints are used in the order given."""
    async with contextlib.AsyncExitStack() as open_clients:

        def make(*endpoints: str, **kwargs: Any) -> EtcdClient:
            client = EtcdClient(endpoints, random=InOrder(), **kwargs)
            open_clients.push_async_callback(client.close)
            return client

        yield make


@pytest.fixture
def without_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients made after this notice a silent connection only by deadlines of their own."""
    kept = tuple(option for option in channel._OPTIONS if "keepalive" not in option[0] and "ping" not in option[0])
    monkeypatch.setattr(channel, "_OPTIONS", kept)


@pytest.fixture
def client(etcd: TestEtcd, connect: Callable[..., EtcdClient]) -> EtcdClient:
    """A client of the session's etcd."""
    return connect(*etcd.endpoints)
