# SPDX-License-Identifier: Apache-2.0
"""A job's process with two forked children: a data loader that has nothing on the device, and one that has.

`loader.py SOCKET DEVICE`: says who is who, then obeys ``load`` (the loader answers), ``touch`` (its own kernel) and
``child`` (a kernel of that child's), one a line, and answers each with a line.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from nodeagent.backends.sim.workload import SimulatedWorkload


def forked(serve: str, socket: Path, device: str) -> tuple[int, int, int]:
    """A child that answers each byte on one pipe by a byte on another: pid, where to write, where to read."""
    calls, ask = os.pipe()
    answer, answers = os.pipe()
    pid = os.fork()
    if pid:
        return pid, ask, answer
    own = SimulatedWorkload(socket) if serve == "child" else None
    if own is not None:
        own.attach(device, b"child" * 100)
    os.close(ask)
    os.write(answers, b".")
    while os.read(calls, 1):
        if own is not None:
            own.touch(device, 1)
        os.write(answers, b".")
    os._exit(0)


def main() -> None:
    socket, device = Path(sys.argv[1]), sys.argv[2]
    workload = SimulatedWorkload(socket)
    workload.attach(device, b"parent" * 100)
    children = {name: forked(name, socket, device) for name in ("load", "child")}
    for _, _, answer in children.values():
        os.read(answer, 1)
    print(json.dumps({name: pid for name, (pid, _, _) in children.items()}), flush=True)
    for line in sys.stdin:
        name = line.strip()
        if name == "touch":
            workload.touch(device, 1)
        else:
            _, ask, answer = children[name]
            os.write(ask, b".")
            os.read(answer, 1)
        print(json.dumps({"done": name}), flush=True)


if __name__ == "__main__":
    main()
