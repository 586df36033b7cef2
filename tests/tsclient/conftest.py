# SPDX-License-Identifier: Apache-2.0
"""Coordinators that keep the stream's contract over a dictionary, and clients of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import tsclient
from tests.tsclient.fake_coordinator import FakeCoordinator

Connect = Callable[..., tsclient.Client]


@pytest.fixture
def coordinator() -> Iterator[FakeCoordinator]:
    fake = FakeCoordinator(replicas=2)  # type: ignore[abstract]  # what it lacks answers UNIMPLEMENTED
    yield fake
    fake.stop()


@pytest.fixture(params=["helper", "in process"])
def connect(coordinator: FakeCoordinator, request: pytest.FixtureRequest) -> Iterator[Connect]:
    """As `connect_by_helper`, with the session in the one place and in the other."""
    with clients(coordinator, in_process=request.param == "in process") as make:
        yield make


@pytest.fixture
def connect_by_helper(coordinator: FakeCoordinator) -> Iterator[Connect]:
    """Opens a client for job "a"; all are closed at the end."""
    with clients(coordinator, in_process=False) as make:
        yield make


@pytest.fixture
def connect_in_process(coordinator: FakeCoordinator) -> Iterator[Connect]:
    """As `connect_by_helper`, without a helper."""
    with clients(coordinator, in_process=True) as make:
        yield make


@contextmanager
def clients(coordinator: FakeCoordinator, *, in_process: bool) -> Iterator[Connect]:
    clients: list[tsclient.Client] = []

    def make(job: str = "a", ttl: float = 30.0) -> tsclient.Client:
        clients.append(tsclient.connect(coordinator.endpoints, job=job, ttl=ttl, in_process=in_process))
        return clients[-1]

    yield make
    for client in clients:
        client.close()
