# SPDX-License-Identifier: Apache-2.0
"""What a simulated workload calls instead of CUDA. Blocking, standard library only."""

from __future__ import annotations

import base64
import json
import socket
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nodeagent.backends.sim.memory import checksum, mutate


class SimulatedDeviceError(Exception):
    """The device refused a call, or is gone."""


class LineClient:
    """A request and its answer, a JSON object a line each, over the device's Unix socket."""

    def __init__(self, path: Path, timeout: float | None = None) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._lines = self._socket.makefile("rb")

    def send(self, request: dict[str, Any]) -> None:
        self._socket.sendall((json.dumps(request) + "\n").encode())

    def receive(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the simulated device hung up")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Touched:
    """What a buffer holds: the number of kernels that ran on it, and its checksum."""

    kernels: int
    checksum: str


class SimulatedWorkload:
    """This process's memory and kernels on the simulated devices. One call at a time, but for kernels that are
    launched ahead: a device runs them one after the other.

    Calls block while the process is locked or parked, as CUDA's do; there is no time limit unless one is
    given.

    Raises `SimulatedDeviceError` when a call is refused, OSError when the device cannot be reached.
    """

    def __init__(self, path: Path, *, timeout: float | None = None) -> None:
        self._client = LineClient(path, timeout)
        self._mirror: dict[str, bytearray] = {}
        self._kernels: dict[str, int] = {}
        self._launched: deque[str] = deque()

    def attach(self, device: str, data: bytes, *, nominal: int = 0) -> None:
        """Put ``data`` on the device. It counts for ``nominal`` bytes; 0: for its own."""
        self._call(op="attach", device=device, data=base64.b64encode(data).decode(), bytes=nominal)
        self._mirror[device], self._kernels[device] = bytearray(data), 0

    def touch(self, device: str, ms: float) -> Touched:
        """Run a kernel of ``ms`` milliseconds that depends on, and changes, what is there."""
        self.launch(device, ms)
        return self.wait()

    def launch(self, device: str, ms: float) -> None:
        """Ask for a kernel, and do not wait for its end: `wait` does, for the oldest of them."""
        self._client.send({"op": "touch", "device": device, "ms": ms})
        self._launched.append(device)

    def wait(self) -> Touched:
        """Wait for the end of the kernel that was launched first. Before any other call, all must have ended."""
        device = self._launched.popleft()
        done = Touched(**self._answer())
        mutate(self._mirror[device], self._kernels[device])
        self._kernels[device] += 1
        return done

    def read(self, device: str) -> Touched:
        return Touched(**self._call(op="checksum", device=device))

    def expected(self, device: str) -> Touched:
        """What `read` answers if no byte was lost, computed here."""
        return Touched(self._kernels[device], checksum(self._mirror[device]))

    def free(self, device: str) -> None:
        self._call(op="free", device=device)
        del self._mirror[device], self._kernels[device]

    def close(self) -> None:
        """Hang up: with the process's last connection its memory is freed."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, **request: Any) -> Any:
        self._client.send(request)
        return self._answer()

    def _answer(self) -> Any:
        answer = self._client.receive()
        if "error" in answer:
            raise SimulatedDeviceError(answer["error"])
        return answer["ok"]
