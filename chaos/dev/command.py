# SPDX-License-Identifier: Apache-2.0
"""`timeslice dev`: a demonstration on this machine."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from rich.console import Console

from chaos.dev.demo import Options
from chaos.dev.demo import run as run_demo
from chaos.planted import BUGS
from chaos.processes import ProcessTrouble
from ledger.etcd_server import EtcdServerError

if TYPE_CHECKING:
    # The name of a private class, that only annotations need.
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

_MIN_SECONDS = 4.0
_MAX_JOBS = 26
_PIPE_WIDTH = 120
_DESCRIPTION = """\
Starts etcd, coordinators, node agents, simulated devices and jobs as processes of this machine, lets each job run
alone and then all together, and judges the run by the devices' own log."""
_EPILOG = """\
examples:
  timeslice dev                        two jobs take turns for 40 s, then the report
  timeslice dev --jobs 3 --etcd 3      three jobs, and an etcd of three members
  timeslice dev --plant skip-save      the same with agents that do not save: the report says what was broken
  timeslice dev --no-live --keep run   plain lines; the logs of all processes stay in the folder `run`

exit status: 0 all promises held, 1 one was broken, 2 wrong arguments, 3 the system did not start
"""


def register(subparsers: Subparsers) -> None:
    """Add the command to `timeslice`."""
    default = Options()
    parser = subparsers.add_parser(
        "dev",
        help="show it on this machine: everything real but the devices",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=_seconds, default=default.seconds, help="of turns (%(default)g)")
    parser.add_argument("--jobs", type=_count(2, _MAX_JOBS), default=default.jobs, help="(%(default)s)")
    parser.add_argument("--replicas", type=_count(1, 9), default=default.replicas, help="coordinators (%(default)s)")
    parser.add_argument("--nodes", type=_count(1, 9), default=default.nodes, help="(%(default)s)")
    parser.add_argument("--etcd", type=_count(1, 5), default=default.etcd, help="members (%(default)s)")
    parser.add_argument("--no-live", action="store_true", help="plain lines, on a terminal too")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave logs and state of all processes there")
    parser.add_argument("--plant", choices=sorted(BUGS), default="", help="run with a bug, to see it found")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run it; the exit status is that of the promises."""
    options = Options(
        seconds=args.seconds,
        jobs=args.jobs,
        replicas=args.replicas,
        nodes=args.nodes,
        etcd=args.etcd,
        live=not args.no_live,
        keep=args.keep,
        plant=args.plant,
    )
    try:
        return run_demo(options, _console())
    except (ProcessTrouble, EtcdServerError, OSError, grpc.RpcError) as error:
        print(f"timeslice dev: {error}", file=sys.stderr)
        return 3


def _console() -> Console:
    """As wide as its terminal; a pipe has no width, so there it is that of the report."""
    console = Console()
    return console if console.is_terminal else Console(width=_PIPE_WIDTH)


def _seconds(text: str) -> float:
    value = float(text)
    if not _MIN_SECONDS <= value < math.inf:
        raise argparse.ArgumentTypeError(f"at least {_MIN_SECONDS:g}")
    return value


def _count(least: int, most: int) -> Callable[[str], int]:
    def count(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"from {least} to {most}")
        return value

    return count
