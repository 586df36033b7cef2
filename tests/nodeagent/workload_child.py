# SPDX-License-Identifier: Apache-2.0
"""A workload process for tests: obeys one command a line, answers each with a JSON line."""

from __future__ import annotations

import dataclasses
import json
import random
import sys
from pathlib import Path

from nodeagent.backends.sim.workload import SimulatedDeviceError, SimulatedWorkload


def main() -> None:
    workload = SimulatedWorkload(Path(sys.argv[1]))
    for line in sys.stdin:
        match line.split():
            case ["attach", device, size, nominal]:
                workload.attach(device, random.Random(device).randbytes(int(size)), nominal=int(nominal))
                answer = {}
            case ["touch", device, ms]:
                answer = dataclasses.asdict(workload.touch(device, float(ms)))
            case ["read", device]:
                same = workload.read(device) == workload.expected(device)
                answer = {"intact": same}
            case ["free", device]:
                workload.free(device)
                answer = {}
            case ["try-attach", device, size]:
                try:
                    workload.attach(device, b"x", nominal=int(size))
                    answer = {"error": ""}
                except SimulatedDeviceError as error:
                    answer = {"error": str(error)}
            case _:
                sys.exit(f"unknown command {line!r}")
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
