# SPDX-License-Identifier: Apache-2.0
"""TCP ports for servers that this machine's tests and demos start.

A port asked of the kernel (bind to 0, close) can be taken by anybody's outgoing connection before the server
binds it, or while a killed server is down. So ports are taken from below the range that the kernel uses for
those, and each is held against other users of this module by an abstract Unix socket, which ends with its
process.
"""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

_FIRST = 10_000
_ATTEMPTS = 2_000


def _ephemeral_start() -> int:
    """The lowest port that the kernel gives to outgoing connections."""
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])


class ReservedPorts:
    """`count` TCP ports of 127.0.0.1 that no other holder of a reservation has, until closed.

    Raises OSError if no free ones are found.
    """

    def __init__(self, count: int, rng: random.Random | None = None) -> None:
        # The system's generator: a test that seeds `random` must not make two runs choose the same ports.
        rng = rng or random.SystemRandom()
        last = max(_ephemeral_start(), _FIRST + 1_000)
        self._holds = contextlib.ExitStack()
        ports: list[int] = []
        for _ in range(_ATTEMPTS):
            if len(ports) == count:
                break
            port = rng.randrange(_FIRST, last)
            if self._hold(port):
                ports.append(port)
        self.ports = tuple(ports)
        if len(ports) < count:
            self.close()
            raise OSError(f"no {count} free TCP ports between {_FIRST} and {last}")

    def _hold(self, port: int) -> bool:
        hold = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            hold.bind(f"\0timeslice-port-{port}")
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            hold.close()
            return False
        self._holds.enter_context(hold)
        return True

    def close(self) -> None:
        """Give the ports back."""
        self._holds.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
