# SPDX-License-Identifier: Apache-2.0
"""A job of the floor, ``python -m bench.floor.job --endpoint … --job … --group …``: told the same as `bench.job`."""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
from typing import Any

from bench.commands import follow
from bench.floor.packets import memory, order, read


class FloorJob:
    """A process and its helper; see `bench.commands.Contender`."""

    def __init__(self, endpoint: str, job: str, group: str, ttl: float) -> None:
        self._job, self._group, self._sequence, self._token = job, group, 0, 0
        self._memory = memory()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-m", "bench.floor.helper", str(number), endpoint, str(ttl)]
            self._helper = subprocess.Popen(command, pass_fds=[number])
        self._wait("opened")

    def acquire(self, queued: bool) -> None:
        self._sequence += 1
        self._socket.send(order("acquire", self._sequence, self._job, self._group, 0))
        while (said := self._next())[0] != "granted":
            if queued and said[0] == "queued":
                print("queued", flush=True)
        self._token = said[2]

    def yield_(self) -> None:
        self._socket.send(order("yield", self._sequence, self._job, self._group, self._token))
        self._wait("yielded")

    def close(self) -> None:
        self._socket.close()
        self._helper.wait(10)

    def _wait(self, kind: str) -> None:
        while self._next()[0] != kind:
            pass

    def _next(self) -> list[Any]:
        length = self._socket.recv_into(self._memory)
        if not length:
            raise ConnectionError("the floor's helper has ended")
        found: list[Any] = read(self._memory[:length])
        return found


def main() -> None:
    """Follow what the standard input says, to its end."""
    parser = argparse.ArgumentParser(prog="python -m bench.floor.job")
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--ttl", type=float, default=60.0)
    arguments = parser.parse_args()
    follow(FloorJob(arguments.endpoint, arguments.job, arguments.group, arguments.ttl))


if __name__ == "__main__":
    main()
