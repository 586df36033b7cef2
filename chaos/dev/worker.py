# SPDX-License-Identifier: Apache-2.0
"""A job's worker on one node, `python -m chaos.dev.worker SOCKET DEVICE...`: its state is on the node's devices.

One command a line on its standard input, a JSON object a line in answer: ``{"kernels": N, "intact": true}``. It
knows nothing of turns: while it is locked or parked its calls simply do not return. It ends when its input ends, or
when the devices are gone.

``touch MS`` is answered when the kernel before it has ended: like a program that trains, a job is one kernel ahead of
its devices, which then need not wait for it. ``state`` is answered when all have.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from nodeagent.backends.sim.workload import SimulatedWorkload

_AHEAD = 1


class Worker:
    """Memory on each of the node's devices, and kernels that change it by a rule that is known here too."""

    def __init__(self, socket: Path, devices: list[str]) -> None:
        self._on = {device: SimulatedWorkload(socket) for device in devices}
        self._ahead = 0

    def attach(self, size: int, nominal: int) -> None:
        """Put ``size`` real bytes on each device; they count for ``nominal``."""
        for device, workload in self._on.items():
            workload.attach(device, random.Random(device).randbytes(size), nominal=nominal)

    def touch(self, ms: float) -> None:
        """One kernel on every device, side by side."""
        for device, workload in self._on.items():
            workload.launch(device, ms)
        self._ahead += 1
        self._wait(_AHEAD)

    def state(self) -> dict[str, object]:
        """How far it is, and whether all bytes are what they must be."""
        self._wait(0)
        kernels = 0
        intact = True
        for device, workload in self._on.items():
            found = workload.read(device)
            kernels = found.kernels
            intact = intact and found == workload.expected(device)
        return {"kernels": kernels, "intact": intact}

    def _wait(self, ahead: int) -> None:
        """Until no more kernels than ``ahead`` are in hand."""
        while self._ahead > ahead:
            for workload in self._on.values():
                workload.wait()
            self._ahead -= 1


def main() -> None:
    """Serve until the end of the input."""
    worker = Worker(Path(sys.argv[1]), sys.argv[2:])
    for line in sys.stdin:
        match line.split():
            case ["attach", size, nominal]:
                worker.attach(int(size), int(nominal))
            case ["touch", ms]:
                worker.touch(float(ms))
            case ["state"]:
                pass
            case _:
                sys.exit(f"unknown command {line!r}")
        answer = worker.state() if line.startswith("state") else {}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
