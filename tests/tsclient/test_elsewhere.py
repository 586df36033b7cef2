# SPDX-License-Identifier: Apache-2.0
"""Something that is no coordinator answers at one of the endpoints: a service that has a dead replica's port."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

import tsclient
from tests.tsclient.fake_coordinator import FakeCoordinator


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """A gRPC server that knows nothing of ours."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.mark.parametrize("in_process", [False, True], ids=["helper", "in process"])
def test_it_is_passed_over_while_there_are_others(
    coordinator: FakeCoordinator, elsewhere: str, *, in_process: bool
) -> None:
    for _ in range(8):  # in an order of the client's own: once in three tries it comes first
        with tsclient.connect([elsewhere, *coordinator.endpoints], job="a", in_process=in_process) as client:
            client.acquire("g", timeout=20).yield_()


def test_where_there_is_nothing_else_that_is_told_at_once(elsewhere: str) -> None:
    with pytest.raises(tsclient.TimesliceError, match=f"{elsewhere} answers UNIMPLEMENTED") as refusal:
        tsclient.connect([elsewhere], job="a", connect_timeout=60)
    assert not isinstance(refusal.value, tsclient.Unavailable)
