# SPDX-License-Identifier: Apache-2.0
"""Follows one group through the public API, over whichever replica answers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Self

import grpc

from timeslice_proto.v1 import coordinator_pb2, coordinator_pb2_grpc

_PAUSE = 0.2
"""Seconds before the next replica is asked, after one has ended the stream."""


class GroupFollower:
    """A thread that keeps the newest view of the group in ``latest``; a context manager."""

    def __init__(self, endpoints: Sequence[str], group: str) -> None:
        self.latest = coordinator_pb2.Group(name=group)
        self._endpoints, self._group = endpoints, group
        self._closing = threading.Event()
        self._channel: grpc.Channel | None = None
        self._thread = threading.Thread(target=self._run, name="group follower", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if self._channel is not None:
            self._channel.close()
        self._thread.join(5.0)

    def _run(self) -> None:
        for endpoint in itertools.cycle(self._endpoints):
            with grpc.insecure_channel(endpoint) as self._channel:
                try:
                    self._read(coordinator_pb2_grpc.CoordinatorStub(self._channel))
                except (grpc.RpcError, ValueError):
                    # The replica is gone, or the channel was closed under us: the next one, unless this is the end.
                    if self._closing.wait(_PAUSE):
                        return

    def _read(self, stub: coordinator_pb2_grpc.CoordinatorStub) -> None:
        for group in stub.WatchGroups(coordinator_pb2.WatchGroupsRequest(names=[self._group])):
            self.latest = group
            if self._closing.is_set():
                return
