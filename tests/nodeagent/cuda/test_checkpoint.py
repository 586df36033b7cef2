# SPDX-License-Identifier: Apache-2.0
"""The driver's answers, told as errors of this project: on a driver that answers as told."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ledger.records import ProcessState
from nodeagent.backends.cuda.checkpoint import CALLS, CheckpointApi
from nodeagent.backends.driver import DriverError, NoContext

PID = os.getpid()
ENDED = 4_200_000
"""Above what the kernel gives out."""


class Code(IntEnum):
    """`CUresult`, of which cuda.h has the numbers."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_INITIALIZED = 3
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_OPERATING_SYSTEM = 304
    CUDA_ERROR_ILLEGAL_STATE = 401
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_NOT_PERMITTED = 800
    CUDA_ERROR_NOT_SUPPORTED = 801
    CUDA_ERROR_UNKNOWN = 999


class State(IntEnum):
    """`CUprocessState`."""

    CU_PROCESS_STATE_RUNNING = 0
    CU_PROCESS_STATE_LOCKED = 1
    CU_PROCESS_STATE_CHECKPOINTED = 2
    CU_PROCESS_STATE_FAILED = 3
    CU_PROCESS_STATE_MIGRATING = 9


class FakeDriver(ModuleType):
    """`cuda.bindings.driver`: every call succeeds, but for those in ``answers``; the process is in ``now``."""

    def __init__(self) -> None:
        super().__init__("cuda.bindings.driver")
        self.answers: dict[str, Code] = {}
        self.now = State.CU_PROCESS_STATE_RUNNING
        self.seen: list[tuple[Any, ...]] = []
        self.CUcheckpointLockArgs = lambda: SimpleNamespace(timeoutMs=0)
        for name in ("cuInit", *CALLS):
            setattr(self, name, self._answering(name))

    def _answering(self, name: str) -> Callable[..., tuple[Any, ...]]:
        def call(*arguments: Any) -> tuple[Any, ...]:
            self.seen.append((name, *arguments))
            code = self.answers.get(name, Code.CUDA_SUCCESS)
            return (code, self.now) if name.endswith("GetState") else (code,)

        return call


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake, package = FakeDriver(), ModuleType("cuda.bindings")
    package.driver = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.bindings", package)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake)
    return fake


@pytest.fixture
def api(driver: FakeDriver) -> CheckpointApi:
    return CheckpointApi()


def act(api: CheckpointApi, step: str, pid: int = PID) -> DriverError:
    with pytest.raises(DriverError) as raised:
        api.lock(pid, 500) if step == "Lock" else getattr(api, step.lower())(pid)
    return raised.value


def test_the_calls(api: CheckpointApi, driver: FakeDriver) -> None:
    api.lock(PID, 500)
    for step in (api.checkpoint, api.restore, api.unlock):
        step(PID)
    (init, *rest) = driver.seen
    assert init == ("cuInit", 0)
    assert [name.removeprefix("cuCheckpointProcess") for name, *_ in rest] == [
        "Lock",
        "Checkpoint",
        "Restore",
        "Unlock",
    ]
    assert rest[0][2].timeoutMs == 500
    assert {pid for _, pid, *_ in rest} == {PID}


@pytest.mark.parametrize(
    ("now", "state"),
    [
        (State.CU_PROCESS_STATE_RUNNING, ProcessState.RUNNING),
        (State.CU_PROCESS_STATE_LOCKED, ProcessState.LOCKED),
        (State.CU_PROCESS_STATE_CHECKPOINTED, ProcessState.PARKED),
        (State.CU_PROCESS_STATE_FAILED, ProcessState.FAILED),
    ],
)
def test_states(api: CheckpointApi, driver: FakeDriver, now: State, state: ProcessState) -> None:
    driver.now = now
    assert api.state(PID) is state


def test_a_state_that_is_another_tools_is_not_taken_for_one_of_ours(api: CheckpointApi, driver: FakeDriver) -> None:
    driver.now = State.CU_PROCESS_STATE_MIGRATING
    with pytest.raises(DriverError, match="another tool"):
        api.state(PID)


@pytest.mark.parametrize(
    ("pid", "code", "nothing"),
    [
        pytest.param(PID, Code.CUDA_ERROR_INVALID_VALUE, True, id="alive-invalid"),
        pytest.param(PID, Code.CUDA_ERROR_NOT_INITIALIZED, True, id="alive-uninitialized"),
        # The same code for one that has ended and for one that may not be reached: only /proc tells them apart.
        pytest.param(ENDED, Code.CUDA_ERROR_OPERATING_SYSTEM, True, id="ended-system"),
        pytest.param(PID, Code.CUDA_ERROR_OPERATING_SYSTEM, False, id="alive-system"),
        pytest.param(PID, Code.CUDA_ERROR_NOT_PERMITTED, False, id="alive-not-permitted"),
    ],
)
def test_who_has_nothing_to_move(api: CheckpointApi, driver: FakeDriver, pid: int, code: Code, nothing: bool) -> None:
    driver.answers["cuCheckpointProcessGetState"] = code
    with pytest.raises(DriverError) as raised:
        api.state(pid)
    assert isinstance(raised.value, NoContext) is nothing


@pytest.mark.parametrize(
    ("step", "code", "now", "final", "why"),
    [
        ("Lock", Code.CUDA_ERROR_NOT_READY, State.CU_PROCESS_STATE_RUNNING, False, "did not come to an end in time"),
        ("Checkpoint", Code.CUDA_ERROR_ILLEGAL_STATE, State.CU_PROCESS_STATE_RUNNING, False, "not in the state"),
        ("Checkpoint", Code.CUDA_ERROR_NOT_SUPPORTED, State.CU_PROCESS_STATE_LOCKED, False, "cannot move"),
        # Only of a restore does that mean the end; here nothing has been tried with what was saved before.
        ("Checkpoint", Code.CUDA_ERROR_NOT_SUPPORTED, State.CU_PROCESS_STATE_CHECKPOINTED, False, "cannot move"),
        ("Checkpoint", Code.CUDA_ERROR_UNKNOWN, State.CU_PROCESS_STATE_FAILED, True, "CUDA_ERROR_UNKNOWN"),
        ("Restore", Code.CUDA_ERROR_NOT_SUPPORTED, State.CU_PROCESS_STATE_CHECKPOINTED, True, "as by NCCL"),
        ("Restore", Code.CUDA_ERROR_INVALID_VALUE, State.CU_PROCESS_STATE_CHECKPOINTED, True, "as by CUDA IPC"),
        # It stays parked, and may be tried again once there is room.
        ("Restore", Code.CUDA_ERROR_OUT_OF_MEMORY, State.CU_PROCESS_STATE_CHECKPOINTED, False, "not enough memory"),
        ("Restore", Code.CUDA_ERROR_NOT_SUPPORTED, State.CU_PROCESS_STATE_LOCKED, False, "cannot move"),
        ("Restore", Code.CUDA_ERROR_INVALID_VALUE, State.CU_PROCESS_STATE_FAILED, True, "CUDA_ERROR_INVALID_VALUE"),
        ("Unlock", Code.CUDA_ERROR_NOT_PERMITTED, State.CU_PROCESS_STATE_LOCKED, False, "lacks a privilege"),
    ],
)
def test_what_a_failed_step_means(
    api: CheckpointApi, driver: FakeDriver, step: str, code: Code, now: State, final: bool, why: str
) -> None:
    driver.answers[f"cuCheckpointProcess{step}"], driver.now = code, now
    error = act(api, step)
    assert not isinstance(error, NoContext)
    assert (error.call, error.pid, error.final) == (step.lower(), PID, final)
    assert code.name in error.why
    assert why in error.why


@pytest.mark.parametrize("step", ["Lock", "Checkpoint", "Restore", "Unlock"])
def test_a_step_on_a_process_that_has_ended(api: CheckpointApi, driver: FakeDriver, step: str) -> None:
    driver.answers = {f"cuCheckpointProcess{one}": Code.CUDA_ERROR_OPERATING_SYSTEM for one in (step, "GetState")}
    assert isinstance(act(api, step, ENDED), NoContext)


def test_no_device(driver: FakeDriver) -> None:
    driver.answers["cuInit"] = Code.CUDA_ERROR_NO_DEVICE
    with pytest.raises(DriverError, match="cuinit: CUDA_ERROR_NO_DEVICE"):
        CheckpointApi()


def test_bindings_that_are_too_old_or_not_there(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    del driver.cuCheckpointProcessRestore
    with pytest.raises(DriverError, match=r"no cuCheckpointProcessRestore; install cuda-python 12\.8"):
        CheckpointApi()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(DriverError, match="cannot be imported"):
        CheckpointApi()


def test_a_driver_without_the_call(api: CheckpointApi, driver: FakeDriver) -> None:
    def missing(*arguments: object) -> tuple[Any, ...]:
        raise RuntimeError("Function cuCheckpointProcessLock not found")

    vars(driver)["cuCheckpointProcessLock"] = missing
    assert "does not offer cuCheckpointProcessLock" in act(api, "Lock").why
