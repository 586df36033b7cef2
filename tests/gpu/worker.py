# SPDX-License-Identifier: Apache-2.0
"""A job for tests of the whole system: `python -m tests.gpu.worker cuda|sim|none BYTES`.

It takes turns by the public API alone, and in each turn trains one step on state that stays on the device. Commands
come a line each on its standard input: ``turns N``, ``hold``, ``give``; at the end of the input it ends. What it does
it says in lines of JSON on its standard output, with times of CLOCK_MONOTONIC. ``none`` has no state: it is the client
of a job whose processes are others.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any, Protocol

import tsclient as ts
from nodeagent.backends.sim.workload import SimulatedWorkload
from tests.gpu.target import fingerprint

GIB = 1 << 30


class State(Protocol):
    """What the job has on the device. Made in its first turn."""

    def step(self) -> float:
        """One step, which changes every tensor; the loss."""

    def digests(self) -> dict[str, str]:
        """For each tensor what tells its content from any other."""

    def account(self) -> dict[str, Any]:
        """What the device says: bytes in use and pids on it."""


class CudaState:
    """Linear layers with AdamW: parameters, gradients and two moments, together 1 GiB a layer."""

    SIDE = 8192

    def __init__(self, size: int) -> None:
        import torch

        self._torch = torch
        torch.manual_seed(20)
        layers = (torch.nn.Linear(self.SIDE, self.SIDE, bias=False, device="cuda") for _ in range(-(-size // GIB)))
        self._model = torch.nn.Sequential(*layers)
        # Fused: without temporary tensors, so that what is on the device is what is meant to be.
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-3, fused=True)
        self.step()

    def step(self) -> float:
        self._optimizer.zero_grad(set_to_none=False)
        batch = self._torch.randn(64, self.SIDE, device="cuda")
        loss = (self._model(batch) - 1).square().mean()
        loss.backward()
        self._optimizer.step()
        return float(loss.item())

    def digests(self) -> dict[str, str]:
        tensors: dict[str, Any] = {}
        for name, parameter in self._model.named_parameters():
            tensors |= {name: parameter, f"{name}.grad": parameter.grad}
            tensors |= {
                f"{name}.{key}": one for key, one in self._optimizer.state[parameter].items() if one.numel() > 1
            }
        return {name: fingerprint([one]) for name, one in tensors.items()}

    def account(self) -> dict[str, Any]:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return {
            "used": pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used,
            "pids": [one.pid for one in processes],
            "own": sum(one.usedGpuMemory or 0 for one in processes if one.pid == os.getpid()),
            "tensors": self._torch.cuda.memory_allocated(),
        }


class SimulatedState:
    """A few real bytes that count for many."""

    def __init__(self, size: int) -> None:
        self._size, self._device = size, os.environ["SIM_DEVICE"]
        self._workload = SimulatedWorkload(Path(os.environ["SIM_SOCKET"]))
        self._workload.attach(self._device, random.Random(os.getpid()).randbytes(1 << 16), nominal=size)

    def step(self) -> float:
        return float(self._workload.touch(self._device, 20.0).kernels)

    def digests(self) -> dict[str, str]:
        return {"buffer": self._workload.read(self._device).checksum}

    def account(self) -> dict[str, Any]:
        from nodeagent.backends.sim.driver import SimulatedDriver

        (use,) = SimulatedDriver(Path(os.environ["SIM_SOCKET"])).use([self._device])
        return {"used": use.used_bytes, "pids": list(use.pids), "own": self._size, "tensors": self._size}


class Worker:
    """The job, told what to do a line at a time."""

    def __init__(self, kind: str, size: int) -> None:
        self._kind, self._size = kind, size
        self._group = os.environ["TIMESLICE_GROUP"]
        self._state: State | None = None
        self._parked: dict[str, str] = {}
        self._held: list[ts.Turn] = []
        if kind == "cuda":
            import torch  # now, and not in the first turn

            assert torch.version.cuda

    def do(self, line: str) -> None:
        match line.split():
            case ["turns", count]:
                for _ in range(int(count)):
                    self.begin()
                    self.end()
            case ["hold"]:
                self.begin()
            case ["give"]:
                self.end()
            case _:
                sys.exit(f"unknown command {line!r}")

    def begin(self) -> None:
        """Wait for a turn, compare every tensor with what it was, train."""
        asked = time.monotonic()
        say("asked", at=asked)
        turn = ts.acquire(self._group)
        granted = time.monotonic()
        new = self._state is None
        changed = [] if self._state is None else self._changed(self._state)
        looked = time.monotonic()
        self._state = self._state or self._make()
        loss = self._state.step() if self._state else 0.0
        turn.check()
        account = self._state.account() if self._state else {}
        self._held.append(turn)
        say(
            "granted",
            token=turn.token,
            restored=turn.restored,
            new=new,
            changed=changed,
            loss=loss,
            account=account,
            asked=asked,
            granted=granted,
            looked=looked,
            tensors=len(self._parked),
        )

    def end(self) -> None:
        """Note every tensor and give the turn back."""
        self._parked = self._state.digests() if self._state else {}
        turn = self._held.pop()
        yielding = time.monotonic()
        turn.yield_()
        say("yielded", token=turn.token, yielding=yielding, yielded=time.monotonic())

    def _make(self) -> State | None:
        match self._kind:
            case "cuda":
                return CudaState(self._size)
            case "sim":
                return SimulatedState(self._size)
            case _:
                return None

    def _changed(self, state: State) -> list[str]:
        now = state.digests()
        return sorted(name for name in self._parked.keys() | now.keys() if self._parked.get(name) != now.get(name))


def say(event: str, **content: Any) -> None:
    print(json.dumps({"event": event, **content}), flush=True)


def main(kind: str, size: str) -> None:
    worker = Worker(kind, int(size))
    say("ready", pid=os.getpid())
    for line in sys.stdin:
        worker.do(line)
        say("done", line=line.strip())
    ts.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
