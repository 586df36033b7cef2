# SPDX-License-Identifier: Apache-2.0
"""`python -m nodeagent …`: the agent by itself, as `timeslice agent …` runs it."""

from __future__ import annotations

import argparse
import sys

from nodeagent.command import add_options, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m nodeagent", description="The node agent.")
    add_options(parser)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
