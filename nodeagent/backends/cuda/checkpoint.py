# SPDX-License-Identifier: Apache-2.0
"""The driver's calls that act on another process, with its result codes told as errors of this project.

CUDA driver API, section "CUDA Checkpointing": driver 570 or later; `cuda.bindings` 12.8 or later.
"""

from __future__ import annotations

from typing import Any

from ledger.records import ProcessState
from nodeagent import procfs
from nodeagent.backends.driver import DriverError, NoContext

CALLS = (
    "cuCheckpointProcessGetState",
    "cuCheckpointProcessLock",
    "cuCheckpointProcessCheckpoint",
    "cuCheckpointProcessRestore",
    "cuCheckpointProcessUnlock",
)

_STATES = {
    "CU_PROCESS_STATE_RUNNING": ProcessState.RUNNING,
    "CU_PROCESS_STATE_LOCKED": ProcessState.LOCKED,
    "CU_PROCESS_STATE_CHECKPOINTED": ProcessState.PARKED,
    "CU_PROCESS_STATE_FAILED": ProcessState.FAILED,
}

# What the driver answers about a process that has no CUDA state.
_NO_CONTEXT = frozenset({"CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_NOT_INITIALIZED"})

_MEANING = {
    "CUDA_ERROR_NOT_READY": "its work on the device did not come to an end in time",
    "CUDA_ERROR_ILLEGAL_STATE": "it is not in the state that this step starts from",
    "CUDA_ERROR_NOT_SUPPORTED": "it has something on the device that the driver cannot move",
    "CUDA_ERROR_OUT_OF_MEMORY": "there is not enough memory for its state",
    "CUDA_ERROR_NOT_PERMITTED": "the agent lacks a privilege; run it as root, in the host's pid namespace",
    "CUDA_ERROR_OPERATING_SYSTEM": "the process cannot be reached; if it is well, the agent lacks CAP_SYS_PTRACE",
}

_NOT_RESTORED = {
    "CUDA_ERROR_INVALID_VALUE": "memory of another process was open in it, as by CUDA IPC",
    "CUDA_ERROR_NOT_SUPPORTED": "memory was shared between it and another process, as by NCCL",
}
"""What a restore says of a process that was saved and cannot be brought back."""


class CheckpointApi:
    """The calls. None retries; each lasts as long as the driver takes."""

    def __init__(self) -> None:
        """Load the driver and initialise it, which a restore needs and takes up to half a second.

        Raises DriverError where there is no driver, no device, or a driver that is too old.
        """
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise DriverError("load", 0, f"cuda.bindings cannot be imported ({error}); install cuda-python") from error
        self._cuda: Any = driver
        missing = [name for name in CALLS if not hasattr(driver, name)]
        if missing:
            raise DriverError("load", 0, f"cuda.bindings has no {missing[0]}; install cuda-python 12.8 or later")
        self._call("cuInit", 0, 0)

    def state(self, pid: int) -> ProcessState:
        """The process's state: RUNNING for any that has called `cuInit`, with something on a device or not.

        Raises NoContext for a process without CUDA state, also for one that has ended.
        """
        try:
            state = self._call("cuCheckpointProcessGetState", pid, pid).name
        except _Answered as answer:
            if answer.code in _NO_CONTEXT or procfs.process(pid) is None:
                raise NoContext("getstate", pid, "it has no CUDA state, or has ended") from answer
            raise
        if state not in _STATES:
            raise DriverError("state", pid, f"another tool is moving it to storage of its own ({state})")
        return _STATES[state]

    def lock(self, pid: int, timeout_ms: int) -> None:
        """RUNNING → LOCKED. Work already on the device is waited for, at most ``timeout_ms``."""
        arguments = self._cuda.CUcheckpointLockArgs()
        arguments.timeoutMs = timeout_ms
        self._act("cuCheckpointProcessLock", pid, arguments)

    def checkpoint(self, pid: int) -> None:
        """LOCKED → PARKED."""
        self._act("cuCheckpointProcessCheckpoint", pid, None)

    def restore(self, pid: int) -> None:
        """PARKED → LOCKED, on the devices that it was on."""
        self._act("cuCheckpointProcessRestore", pid, None)

    def unlock(self, pid: int) -> None:
        """LOCKED → RUNNING."""
        self._act("cuCheckpointProcessUnlock", pid, None)

    def _act(self, name: str, pid: int, arguments: object) -> None:
        try:
            self._call(name, pid, pid, arguments)
        except _Answered as answer:
            # Raises NoContext for a process that has ended. Else the code alone does not say how the process is.
            now = self.state(pid)
            # A process that the driver has saved and cannot bring back stays PARKED; a second attempt fails too.
            lost = name.endswith("Restore") and now is ProcessState.PARKED and answer.code in _NOT_RESTORED
            why = f"{answer.code}: {_NOT_RESTORED[answer.code]}" if lost else answer.why
            raise DriverError(answer.call, pid, why, final=lost or now is ProcessState.FAILED) from answer

    def _call(self, name: str, pid: int, *arguments: object) -> Any:
        step = name.removeprefix("cuCheckpointProcess").lower()
        try:
            code, *values = getattr(self._cuda, name)(*arguments)
        except RuntimeError as error:  # how cuda.bindings tells of a missing library or function
            raise DriverError(step, pid, f"the NVIDIA driver does not offer {name} ({error})") from error
        if int(code) == 0:
            return values[0] if values else None
        raise _Answered(step, pid, code.name)


class _Answered(DriverError):
    """The driver's own answer, by the name of its code."""

    def __init__(self, call: str, pid: int, code: str) -> None:
        meaning = _MEANING.get(code)
        super().__init__(call, pid, f"{code}: {meaning}" if meaning else code)
        self.code = code
