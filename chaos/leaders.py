# SPDX-License-Identifier: Apache-2.0
"""Changes of etcd's leader, one after the other, in the background."""

from __future__ import annotations

import json
import subprocess
import time
from types import TracebackType

from chaos.beside import Beside
from chaos.world import World
from ledger.embedded import EtcdCluster
from ledger.etcd_server import EtcdServerError, find_etcd

_SECONDS = 30.0


def move_leader(cluster: EtcdCluster) -> int:
    """Have the leader hand over to another member; the index of that one. Raises EtcdServerError."""
    leader = cluster.leader()
    chosen = (leader + 1) % len(cluster.members)
    ids = {
        one["name"]: format(one["ID"], "x")
        for one in json.loads(_etcdctl(cluster.endpoints[leader], "member", "list", "-w", "json"))["members"]
    }
    _etcdctl(cluster.endpoints[leader], "move-leader", ids[cluster.members[chosen].name])
    return chosen


def _etcdctl(endpoint: str, *arguments: str) -> str:
    command = [str(find_etcd().tool("etcdctl")), f"--endpoints={endpoint}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        raise EtcdServerError(f"etcdctl {' '.join(arguments)}: {done.stderr.strip()}", "is there a majority?")
    return done.stdout


class LeaderChanges(Beside):
    """``with LeaderChanges(world, every)``: in the block the leader changes every so many seconds.

    In turns it hands over when it is asked, and is killed and started again. Leaving the block raises what ended the
    changes early: EtcdServerError.

    Attributes:
        at: of each change, ns of CLOCK_MONOTONIC.
    """

    def __init__(self, world: World, every: float) -> None:
        super().__init__("changes of the leader", 2 * _SECONDS)
        self._world, self._every = world, every
        self.at: list[int] = []
        self._error: EtcdServerError | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._error is not None and error is None:
            raise self._error

    def _run(self) -> None:
        try:
            due = time.monotonic()
            while not self._ended.wait(max(due - time.monotonic(), 0.0)):
                due += self._every
                if len(self.at) % 2:
                    self._kill()
                else:
                    move_leader(self._world.etcd)
                self.at.append(time.monotonic_ns())
        except EtcdServerError as error:
            self._error = error

    def _kill(self) -> None:
        name = self._world.etcd.members[self._world.etcd.leader()].name
        self._world.kill(name)
        self._world.restart(name)
