# SPDX-License-Identifier: Apache-2.0
"""What the commands that wait for a turn have in common: their options, and what is shown meanwhile."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsclient.errors import BadRequest

if TYPE_CHECKING:
    from tsclient.options import IfHeld
    from tsclient.progress import Progress


@dataclass(frozen=True, slots=True)
class Wanted:
    """A turn that is to be waited for.

    Attributes:
        endpoints: None: the environment's.
        ttl: seconds; None: the environment's.
        wait: seconds for the turn; None: as long as it takes.
        timeout: seconds for a session.
    """

    endpoints: str | None
    group: str
    job: str
    ttl: float | None
    priority: int
    if_held: IfHeld
    wait: float | None
    timeout: float


def add_waiting(parser: argparse.ArgumentParser) -> None:
    """Add the options by which `wanted` knows what to wait for."""
    add = parser.add_argument
    add("--group", default=os.environ.get("TIMESLICE_GROUP", ""), help="whose accelerators; default: TIMESLICE_GROUP")
    add("--job", default=os.environ.get("TIMESLICE_JOB_ID", ""), help="for which job; default: TIMESLICE_JOB_ID")
    add("--wait", type=float, metavar="S", help="seconds to wait for the turn; default: as long as it takes")
    add("--priority", type=int, default=0, metavar="N", help="larger is served first; default: %(default)s")
    add(
        "--ttl",
        type=float,
        metavar="S",
        help="that the turn outlives the last heartbeat; default: TIMESLICE_TTL, or 10",
    )
    add("--join", action="store_true", help="where another process has a ticket of the job, wait for its end")


def wanted(args: argparse.Namespace) -> Wanted:
    """Raises BadRequest if group or job is not said."""
    for name, variable in (("group", "TIMESLICE_GROUP"), ("job", "TIMESLICE_JOB_ID")):
        if not getattr(args, name):
            raise BadRequest(f"It is not said for which {name}.", next_step=f"Pass --{name}, or set {variable}.")
    if args.wait is not None and not args.wait >= 0:
        raise BadRequest(f"--wait {args.wait:g} is no time to wait.", next_step="Give seconds, 0 or more.")
    return Wanted(
        endpoints=args.endpoints,
        group=args.group,
        job=args.job,
        ttl=args.ttl,
        priority=args.priority,
        if_held="wait" if args.join else "refuse",
        wait=args.wait,
        timeout=args.timeout,
    )


def tell(news: Progress) -> None:
    """Show a person where the wait stands; a program that reads the errors is spared it."""
    if sys.stderr.isatty():
        print(f"timeslice: {news}", file=sys.stderr)
