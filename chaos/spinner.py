# SPDX-License-Identifier: Apache-2.0
"""A worker that listens to nobody, ``python -m chaos.spinner SOCKET DEVICE``: one kernel after the other, for ever.

It is what is left of a job whose client has died: ranks that spin in a collective do not notice.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nodeagent.backends.sim.workload import SimulatedWorkload

_MS = 20.0


def main() -> None:
    """Run until it is killed, or the device hangs up."""
    socket, device = Path(sys.argv[1]), sys.argv[2]
    with SimulatedWorkload(socket) as workload:
        workload.attach(device, b"spin" * 256)
        print(f"spins on {device}", flush=True)
        while True:
            workload.touch(device, _MS)


if __name__ == "__main__":
    main()
