# SPDX-License-Identifier: Apache-2.0
"""Agents with a bug planted in them, to see that what judges the system notices: ``python -m chaos.planted BUG …``.

The rest of the command line is the agent's own. The bug is put in place of the production class when the process
starts; there is nothing of it in the agent.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from msgspec.structs import replace

from ledger.records import Process, ProcessState
from nodeagent import __main__ as program
from nodeagent import agent
from nodeagent.backends.base import Findings, Found, Known
from nodeagent.backends.driven import DrivenBackend
from nodeagent.backends.driver import DeviceUse, Progress


class SkipsSave(DrivenBackend):
    """Says that it has locked, saved and restored a process, and has not touched it."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._said: dict[int, ProcessState] = {}

    async def lock(self, process: Process, *, within: float) -> None:
        self._said[process.pid] = ProcessState.LOCKED

    async def save(self, process: Process, progress: Progress, *, within: float) -> None:
        self._said[process.pid] = ProcessState.PARKED

    async def restore(self, process: Process, progress: Progress, *, within: float) -> None:
        self._said[process.pid] = ProcessState.LOCKED

    async def resume(self, process: Process, *, within: float) -> None:
        self._said.pop(process.pid, None)

    async def undo(self, process: Process, *, within: float) -> None:
        self._said.pop(process.pid, None)

    async def state(self, process: Process, *, within: float) -> ProcessState | None:
        state = await super().state(process, within=within)
        return state and self._said.get(process.pid, state)

    async def find(self, group: str, devices: Sequence[str], known: Known, *, within: float) -> Findings:
        findings = await super().find(group, devices, known, within=within)
        return replace(
            findings, found=tuple(map(self._pretend, findings.found)), use=tuple(map(self._hide, findings.use))
        )

    def _pretend(self, found: Found) -> Found:
        state = self._said.get(found.process.pid, found.state)
        return replace(found, state=state, devices=() if state is ProcessState.PARKED else found.devices)

    def _hide(self, use: DeviceUse) -> DeviceUse:
        pids = tuple(pid for pid in use.pids if self._said.get(pid) is not ProcessState.PARKED)
        return replace(use, pids=pids, used_bytes=use.used_bytes if pids else 0)


BUGS: dict[str, type[DrivenBackend]] = {"skip-save": SkipsSave}


def main() -> int:
    """Plant the bug, then run the agent."""
    agent.DrivenBackend = BUGS[sys.argv.pop(1)]  # type: ignore[attr-defined]
    return program.main()


if __name__ == "__main__":
    sys.exit(main())
