# SPDX-License-Identifier: Apache-2.0
"""A program in a network namespace of its own: ``python -m chaos.apart NAMESPACE -m MODULE …`` becomes that program.

Only root can make one, with iproute2. A pair of interfaces connects it with this machine; taking that down is a cable
that is pulled: nobody is told, and packets go nowhere, which no proxy between two sockets can do.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from random import SystemRandom

_FOLDER = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_SECONDS = 30.0
_SUBNETS = 1 << 14
_ATTEMPTS = 100


class Namespace:
    """A namespace and its cable.

    Attributes:
        here: this machine's address on the cable; what is in the namespace reaches it there.
        there: the namespace's own.

    Raises OSError when it cannot be made.
    """

    def __init__(self) -> None:
        self._hold, subnet = _reserve()
        self.name, self._cable = f"timeslice-{subnet}", f"ts{subnet}"
        network = f"10.213.{subnet >> 6}.{(subnet & 63) << 2}".rpartition(".")
        self.here, self.there = (f"{network[0]}.{int(network[2]) + host}" for host in (1, 2))

    def make(self) -> None:
        """Make it. What it is made of is gone after `remove`, also if this fails."""
        _ip("netns", "add", self.name)
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", "cable", "netns", self.name)
        _ip("address", "add", f"{self.here}/30", "dev", self._cable)
        _ip("link", "set", self._cable, "up")
        inside = ("-netns", self.name)
        _ip(*inside, "address", "add", f"{self.there}/30", "dev", "cable")
        _ip(*inside, "link", "set", "cable", "up")
        _ip(*inside, "link", "set", "lo", "up")

    def pull(self) -> None:
        """Pull the cable."""
        _ip("link", "set", self._cable, "down")

    def plug_in(self) -> None:
        _ip("link", "set", self._cable, "up")

    def remove(self) -> None:
        """Remove it, and the cable with it. Twice is once."""
        self._hold.close()
        if (_FOLDER / self.name).exists():
            _ip("netns", "delete", self.name)


def why_not() -> str:
    """Why there can be no namespaces here; empty: there can be."""
    if os.geteuid() != 0:
        return "only root can make a network namespace"
    if shutil.which("ip") is None:
        return "iproute2 (the program ip) is not installed"
    trial = Namespace()
    try:
        trial.make()
    except OSError as error:
        return f"no network namespace can be made: {error}"
    finally:
        trial.remove()
    return ""


def _reserve() -> tuple[socket.socket, int]:
    """A subnet of 10.213.0.0/16 that no other world of this machine has; held by an abstract socket."""
    for _ in range(_ATTEMPTS):
        subnet = SystemRandom().randrange(_SUBNETS)
        hold = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            hold.bind(f"\0timeslice-subnet-{subnet}")
        except OSError:
            hold.close()
            continue
        return hold, subnet
    raise OSError("no free subnet")


def _ip(*arguments: str) -> None:
    try:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.SubprocessError as error:
        said = getattr(error, "stderr", "") or str(error)
        raise OSError(f"ip {' '.join(arguments)}: {said.strip()}") from error


def main() -> None:
    """Enter the namespace, and become the program."""
    name, *program = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    with (_FOLDER / name).open("rb") as namespace:
        if libc.setns(namespace.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    os.execv(sys.executable, [sys.executable, *program])


if __name__ == "__main__":
    main()
