# SPDX-License-Identifier: Apache-2.0
"""Which driver, and how a helper process is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nodeagent.backends.driver import Driver


@dataclass(frozen=True, slots=True)
class DriverChoice:
    """A driver by name: ``sim`` (with the simulated device's socket) or ``cuda``."""

    name: str
    socket: str = ""

    def unready(self) -> str:
        """Why this node cannot do it, found by a test that changes nothing; empty when it can. May hang."""
        if self.name != "cuda":
            return ""
        from nodeagent.backends.cuda.selftest import examine

        return str(examine())

    def open(self) -> Driver:
        """The driver itself. Imported here, since each needs what the other's machine may lack.

        Raises ImportError where the driver's libraries are not installed, ValueError for an unknown name.
        """
        match self.name:
            case "sim":
                from nodeagent.backends.sim.driver import SimulatedDriver

                return SimulatedDriver(Path(self.socket))
            case "cuda":
                from nodeagent.backends.cuda.driver import CudaDriver

                return CudaDriver()
            case _:
                raise ValueError(f"there is no driver {self.name!r}")
