# SPDX-License-Identifier: Apache-2.0
"""The devices' own account of their memory and processes, by NVML."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.records import Device
from nodeagent.backends.driver import DeviceUse, DriverError


@dataclass(frozen=True, slots=True)
class Facts:
    """What is asked once.

    Attributes:
        driver: its version, as ``580.95.05``.
        mig: UUIDs of the devices that are in MIG mode, which the driver cannot checkpoint.
    """

    driver: str
    devices: tuple[Device, ...]
    mig: tuple[str, ...]


class Nvml:
    """One initialised NVML. Safe to call from several threads."""

    def __init__(self) -> None:
        """Raises DriverError where NVML is not there or does not answer."""
        try:
            import pynvml
        except ImportError as error:
            raise DriverError("nvml", 0, f"pynvml cannot be imported ({error}); install nvidia-ml-py") from error
        self._nvml: Any = pynvml
        with self._errors("init"):
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
            self._handles = {pynvml.nvmlDeviceGetUUID(one): one for one in handles}

    def facts(self) -> Facts:
        """The driver's version and all devices, those in MIG mode too."""
        with self._errors("facts"):
            devices = tuple(Device(uuid, self._memory(handle).total) for uuid, handle in self._handles.items())
            mig = tuple(uuid for uuid, handle in self._handles.items() if self._in_mig_mode(handle))
            return Facts(self._nvml.nvmlSystemGetDriverVersion(), devices, mig)

    def use(self, devices: Sequence[str]) -> list[DeviceUse]:
        """What is on these devices now, by the driver."""
        with self._errors("use"):
            return [self._use(uuid) for uuid in devices]

    def used_bytes(self) -> int:
        """Device memory in use on all devices together."""
        with self._errors("memory"):
            return sum(self._memory(handle).used for handle in self._handles.values())

    def bytes_of(self, pid: int) -> int:
        """Device memory of one process on all devices; 0 for one that has none."""
        with self._errors("processes"):
            return sum(
                one.usedGpuMemory or 0
                for handle in self._handles.values()
                for one in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
                if one.pid == pid
            )

    def _use(self, uuid: str) -> DeviceUse:
        if uuid not in self._handles:
            raise DriverError("use", 0, f"there is no device {uuid} on this node")
        handle = self._handles[uuid]
        # Graphics and video processes hold device memory too: they stand in the way as well.
        pids = {
            one.pid
            for processes in (
                self._nvml.nvmlDeviceGetComputeRunningProcesses(handle),
                self._nvml.nvmlDeviceGetGraphicsRunningProcesses(handle),
            )
            for one in processes
        }
        memory = self._memory(handle)
        return DeviceUse(uuid, memory.used, memory.total, tuple(sorted(pids)))

    def _memory(self, handle: object) -> Any:
        # The second version counts what the driver keeps for itself apart: an unused device shows almost nothing.
        return self._nvml.nvmlDeviceGetMemoryInfo(handle, version=self._nvml.nvmlMemory_v2)

    def _in_mig_mode(self, handle: object) -> bool:
        try:
            current, _ = self._nvml.nvmlDeviceGetMigMode(handle)
        except self._nvml.NVMLError_NotSupported:
            return False
        return bool(current)

    @contextlib.contextmanager
    def _errors(self, call: str) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            raise DriverError(f"nvml {call}", 0, f"NVML: {error}") from error
