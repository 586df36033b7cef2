# SPDX-License-Identifier: Apache-2.0
"""`nodeagent.backends.driver.Driver` over an NVIDIA driver."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ledger.records import Device, ProcessState
from nodeagent.backends.cuda import obstacles
from nodeagent.backends.cuda.checkpoint import CheckpointApi
from nodeagent.backends.cuda.nvml import Nvml
from nodeagent.backends.cuda.progress import Watched
from nodeagent.backends.driver import DriverError, NoContext, Progress, Sight, Verdict
from nodeagent.procfs import resident_bytes


class CudaDriver:
    """The driver of this node's NVIDIA devices. One for each helper process."""

    def __init__(self) -> None:
        """Raises DriverError where the node cannot do it; `selftest` says so in more words."""
        self._nvml = Nvml()
        self._api = CheckpointApi()
        # For progress alone: of a process that another helper parked it cannot be told.
        self._parked: dict[int, int] = {}

    def devices(self) -> Sequence[Device]:
        facts = self._nvml.facts()
        return [one for one in facts.devices if one.uuid not in facts.mig]

    def look(self, devices: Sequence[str], of: Collection[str], pids: Collection[int]) -> Sight:
        use = {one.uuid: one for one in self._nvml.use(devices)} if devices else {}
        there = {pid for one in use.values() if one.uuid in of for pid in one.pids}
        return Sight(use, {pid: self._state(pid) for pid in sorted(there.union(pids))})

    def _state(self, pid: int) -> ProcessState | None:
        try:
            return self._api.state(pid)
        except NoContext:
            return None

    def check(self, pid: int) -> Verdict:
        try:
            found = obstacles.look(pid)
        except PermissionError as error:
            raise DriverError("check", pid, f"it cannot be looked at ({error}); run the agent as root") from error
        if found is None:
            raise NoContext("check", pid, "it has ended")
        return Verdict(obstacles.judge(found), self._nvml.bytes_of(pid))

    def lock(self, pid: int, timeout_ms: int) -> None:
        self._api.lock(pid, timeout_ms)

    def checkpoint(self, pid: int, progress: Progress) -> None:
        total, before = self._nvml.bytes_of(pid), resident_bytes(pid)
        # The driver copies into the target's own memory, which therefore grows by what has been saved.
        with Watched(lambda: resident_bytes(pid) - before, total, progress):
            self._api.checkpoint(pid)
        self._expect(pid, "checkpoint", ProcessState.PARKED)
        self._parked[pid] = total

    def restore(self, pid: int, progress: Progress) -> None:
        # Each piece that is back on the device leaves the target's own memory; NVML lists the process only at the end.
        before = resident_bytes(pid)
        with Watched(lambda: before - resident_bytes(pid), self._parked.get(pid, 0), progress):
            self._api.restore(pid)
        self._expect(pid, "restore", ProcessState.LOCKED)

    def unlock(self, pid: int) -> None:
        self._api.unlock(pid)

    def _expect(self, pid: int, call: str, state: ProcessState) -> None:
        now = self._api.state(pid)
        if now is not state:
            why = f"the driver said that it was done, and the process is {now.name}"
            raise DriverError(call, pid, why, final=now is ProcessState.FAILED)
