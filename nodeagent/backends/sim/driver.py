# SPDX-License-Identifier: Apache-2.0
"""The driver of the simulated device: `nodeagent.backends.driver.Driver` over its socket."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ledger.records import Device, ProcessState
from nodeagent.backends.driver import DeviceUse, DriverError, NoContext, Progress, Sight, Verdict
from nodeagent.backends.sim.faults import FaultKind
from nodeagent.backends.sim.workload import LineClient


def _no_progress(done: int, total: int) -> None:
    """For calls that report none."""


class SimulatedDriver:
    """One connection, made at the first call. A call may last for ever: who calls it sets the limit."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._client: LineClient | None = None

    def devices(self) -> Sequence[Device]:
        return [Device(one["uuid"], one["total"]) for one in self._call("devices")]

    def look(self, devices: Sequence[str], of: Collection[str], pids: Collection[int]) -> Sight:
        seen = self._call("look", devices=list(devices), of=list(of), pids=list(pids))
        uses = [DeviceUse(one["uuid"], one["used"], one["total"], tuple(one["pids"])) for one in seen["use"]]
        states = {pid: name and ProcessState[name] for pid, name in seen["states"]}
        return Sight({one.uuid: one for one in uses}, states)

    def check(self, pid: int) -> Verdict:
        return Verdict(**self._call("check", pid))

    def lock(self, pid: int, timeout_ms: int) -> None:
        self._call("lock", pid, timeout_ms=timeout_ms)

    def checkpoint(self, pid: int, progress: Progress) -> None:
        self._call("checkpoint", pid, progress)

    def restore(self, pid: int, progress: Progress) -> None:
        self._call("restore", pid, progress)

    def unlock(self, pid: int) -> None:
        self._call("unlock", pid)

    # --------------------------------------------------------------------------- for tests and demonstrations

    def use(self, devices: Sequence[str]) -> Sequence[DeviceUse]:
        """What is on these devices now."""
        return list(self.look(devices, (), ()).use.values())

    def state(self, pid: int) -> ProcessState:
        """Raises NoContext."""
        state = self.look((), (), (pid,)).states[pid]
        if state is None:
            raise NoContext("state", pid, "it has no context on a device")
        return state

    def fault(self, kind: FaultKind, *, job: str = "", pid: int = 0, times: int = -1, ms: int = 0) -> None:
        """Let the device have a fault; ``times`` -1: until `clear_faults`."""
        self._call("fault", pid, kind=kind.value, job=job, times=times, ms=ms)

    def clear_faults(self) -> None:
        self._call("clear-faults")

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _call(self, op: str, pid: int = 0, progress: Progress = _no_progress, **more: Any) -> Any:
        try:
            if self._client is None:
                self._client = LineClient(self._path)
            self._client.send({"op": op, "pid": pid, **more})
            while "progress" in (answer := self._client.receive()):
                progress(*answer["progress"])
        except OSError as error:
            self.close()
            raise DriverError(op, pid, f"the simulated device cannot be reached ({error})") from error
        if "error" in answer:
            kind = NoContext if answer["no_context"] else DriverError
            raise kind(op, pid, answer["error"], final=answer["final"])
        return answer["ok"]
