# SPDX-License-Identifier: Apache-2.0
"""What a world can do to each of its processes by name; a member of etcd, which its cluster starts, among them."""

from __future__ import annotations

import signal
from typing import Protocol

from ledger.embedded import EtcdCluster


class Named(Protocol):
    """What `World` can do to each of its processes, by name."""

    @property
    def pid(self) -> int | None: ...
    def kill(self) -> None: ...
    def end(self, number: signal.Signals, within: float) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...


class Member:
    """A member of the etcd cluster, seen as the other processes are."""

    def __init__(self, cluster: EtcdCluster, index: int) -> None:
        self.index, self._cluster, self._member = index, cluster, cluster.members[index]

    @property
    def pid(self) -> int | None:
        return self._member.pid

    def kill(self) -> None:
        self._cluster.kill(self.index)

    def end(self, number: signal.Signals, within: float) -> None:
        del within  # the cluster has its own limit
        self._member.end(number)

    def freeze(self) -> None:
        self._cluster.freeze(self.index)

    def thaw(self) -> None:
        self._cluster.thaw(self.index)
