# SPDX-License-Identifier: Apache-2.0
"""A node's devices inside the agent's own process: what a driver and its helpers do, in no time or in a stated one.

So that many nodes can be played by one machine: their agents are the real ones down to the calls of the driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ledger.records import ProcessState
from nodeagent.backends.driver import Progress
from nodeagent.backends.drivers import DriverChoice
from nodeagent.helpers import HelperPool

CAPACITY = 80 << 30
_BYTES = 64


class InProcessPool(HelperPool):
    """Answers the calls of helpers itself.

    Attributes:
        devices: their UUIDs.
        cost: seconds that a save and a restore take together, by device.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        super().__init__(DriverChoice("sim"), ())
        self.devices = tuple(devices)
        self.cost: dict[str, float] = {}
        self._states: dict[int, ProcessState] = {}
        self._places: dict[int, str] = {}
        self._attached: dict[str, list[int]] = {uuid: [] for uuid in devices}

    def attach(self, pid: int, device: str) -> None:
        """The process has state on the device from now on."""
        self._states[pid], self._places[pid] = ProcessState.RUNNING, device
        self._attached[device].append(pid)

    async def call(
        self, name: str, pid: int, *, within: float, progress: Progress | None = None, **arguments: Any
    ) -> Any:
        del within, progress  # it always ends
        match name:
            case "unready":
                return ""
            case "devices":
                return [[uuid, CAPACITY] for uuid in self.devices]
            case "look":
                return self._look(**arguments)
            case "check":
                return ["", _BYTES]
            case "lock":
                self._states[pid] = ProcessState.LOCKED
            case "checkpoint":
                await self._copy(pid)
                self._states[pid] = ProcessState.PARKED
            case "restore":
                await self._copy(pid)
                self._states[pid] = ProcessState.LOCKED
            case "unlock":
                self._states[pid] = ProcessState.RUNNING
            case unknown:
                raise AssertionError(f"no call of a driver: {unknown}")
        return None

    async def warm(self, pid: int) -> None:
        """There is nothing to start."""

    async def forget_dead(self) -> None:
        """There is nothing to end."""

    async def close(self) -> None:
        """There is nothing to end."""

    async def _copy(self, pid: int) -> None:
        if cost := self.cost.get(self._places[pid], 0.0):
            await asyncio.sleep(cost / 2)

    def _look(self, devices: Sequence[str], of: Sequence[str], pids: Sequence[int]) -> object:
        """The account of ``devices``, and the states of ``pids`` and of all that is on ``of``."""
        there = {pid for uuid in of for pid in self._on(uuid)}
        states = [(pid, state._name_ if (state := self._states.get(pid)) else None) for pid in sorted({*there, *pids})]
        accounts = [[uuid, _BYTES * len(here), CAPACITY, here] for uuid in devices for here in [self._on(uuid)]]
        return [accounts, states]

    def _on(self, uuid: str) -> list[int]:
        """The processes whose state is on the device now."""
        return [pid for pid in self._attached[uuid] if self._states[pid] is not ProcessState.PARKED]
