# SPDX-License-Identifier: Apache-2.0
"""Ports that nobody else can take while they are reserved."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from ledger.ports import ReservedPorts


class Scripted(random.Random):
    """Draws these ports, in this order."""

    def __init__(self, *ports: int) -> None:
        super().__init__()
        self._ports = iter(ports)

    def randrange(self, *_: object) -> int:
        return next(self._ports)


def test_a_reserved_port_is_not_given_again_until_closed() -> None:
    with ReservedPorts(1) as mine:
        (port,) = mine.ports
        with ReservedPorts(1) as spare:
            (other,) = spare.ports
        with ReservedPorts(1, Scripted(port, port, other)) as second:
            assert second.ports == (other,)
    with ReservedPorts(1, Scripted(port)) as again:
        assert again.ports == (port,)


def test_a_port_that_a_server_has_is_passed_over() -> None:
    with ReservedPorts(2) as found:
        taken, free = found.ports
    with socket.create_server(("127.0.0.1", taken)), ReservedPorts(1, Scripted(taken, free)) as mine:
        assert mine.ports == (free,)


def test_ports_are_below_those_of_outgoing_connections() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    with ReservedPorts(30) as mine:
        assert len(set(mine.ports)) == 30
        assert max(mine.ports) < first


def test_failing_to_find_enough_gives_back_what_was_found() -> None:
    with ReservedPorts(1) as found:
        (port,) = found.ports
    with pytest.raises(OSError, match="no 2 free"):
        ReservedPorts(2, Scripted(*[port] * 3_000))
    with ReservedPorts(1, Scripted(port)) as mine:
        assert mine.ports == (port,)
