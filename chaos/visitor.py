# SPDX-License-Identifier: Apache-2.0
"""A real client that comes by: ``python -m chaos.visitor GROUP`` takes a turn, says so, and stays until its input ends.

Where it is and who it is says its environment, as for every client.
"""

from __future__ import annotations

import sys

import tsclient as ts


def main() -> None:
    """One session, from its opening to its end."""
    with ts.connect() as client:
        with client.accelerators(sys.argv[1]) as turn:
            print(f"visits with token {turn.token}", flush=True)
        print("stays", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
