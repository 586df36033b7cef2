# SPDX-License-Identifier: Apache-2.0
"""Coordinators that keep the stream's contract over a dictionary, and clients of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import tsclient
from tests.tsclient.fake_coordinator import FakeCoordinator

Connect = Callable[..., tsclient.Client]


@pytest.fixture
def coordinator() -> Iterator[FakeCoordinator]:
    fake = FakeCoordinator(replicas=2)  # type: ignore[abstract]  # what it lacks answers UNIMPLEMENTED
    yield fake
    fake.stop()


@pytest.fixture
def connect(coordinator: FakeCoordinator) -> Iterator[Connect]:
    """Opens a client for job "a"; all are closed at the end."""
    clients: list[tsclient.Client] = []

    def make(job: str = "a", ttl: float = 30.0) -> tsclient.Client:
        clients.append(tsclient.connect(coordinator.endpoints, job=job, ttl=ttl))
        return clients[-1]

    yield make
    for client in clients:
        client.close()
