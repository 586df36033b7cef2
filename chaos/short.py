# SPDX-License-Identifier: Apache-2.0
"""``python -m chaos.short``: a few faults of nearly each scenario, with fixed seeds: two minutes. What CI runs.

Of the many kinds that `mixed` draws from, and of the failpoints, it has some; all of them are in the long runs.

Each scenario has a world and a process of its own; two run side by side.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from chaos.pieces import Halt, Piece, run_all
from chaos.results import Results
from chaos.scenarios import ALL
from chaos.summary import summary

SEED = 182

COUNTS: Mapping[str, int] = {
    "mixed": 10,
    "failpoints": 6,
    "kill-replica-mid-switch": 3,
    "kill-agent-mid-switch": 2,
    "kill-helper-mid-switch": 2,
    "kill-etcd-leader": 1,
    "stop-replica": 1,
    "kill-holder": 1,
    "freeze-holder": 1,
    "cancel-waiter": 4,
    "refusing-node": 2,
    "several-groups": 2,
    "failover": 2,
    "rolling-restart": 3,
    "leader-changes": 1,
    "sessions": 60,
}
"""Faults that have to count, by scenario."""


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0: every promise held."""
    parser = argparse.ArgumentParser(prog="python -m chaos.short", description="A few faults of nearly each scenario.")
    parser.add_argument("--workers", type=int, default=2, help="scenarios side by side (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    by_name = {one.name: one for one in ALL}
    pieces = [Piece(by_name[name], SEED, count, math.inf) for name, count in COUNTS.items()]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="timeslice-chaos-") as folder:
        results = Results(Path(folder))
        held = run_all(pieces, results, _say, Halt(), chosen.workers)
        for line in summary(results.read()):
            _say(line)
    _say(f"{len(pieces)} scenarios in {time.monotonic() - began:.0f} s: {'all promises held' if held else 'VIOLATED'}")
    return 0 if held else 1


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
