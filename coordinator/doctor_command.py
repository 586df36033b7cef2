# SPDX-License-Identifier: Apache-2.0
"""`timeslice doctor`: is all well with etcd, the coordinators, the agents and the groups?"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from coordinator.doctor import QUOTA_BYTES, Finding, Level, examine, gather
from ledger.options import Store, add_store_options, store_from

_EPILOG = """\
exit status:
    0  all is well, or there are warnings only
    1  something is bad
    2  the command line is wrong

example:
  timeslice doctor --etcd 10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379 -o json
"""

_MARK = {Level.OK: "ok  ", Level.WARNING: "warn", Level.BAD: "BAD "}


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "doctor",
        help="look at etcd, coordinators, agents and groups, and say what is wrong",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--quota-bytes",
        type=_bytes,
        default=QUOTA_BYTES,
        metavar="N",
        help="what etcd was told by --quota-backend-bytes (default: its own, %(default)s)",
    )
    add_store_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        store = store_from(args)
        found = asyncio.run(_look(store, args.quota_bytes))
    except (ValueError, OSError) as error:
        print(f"timeslice doctor: {error}", file=sys.stderr)
        return 2
    sound = all(one.level is not Level.BAD for one in found)
    if args.output == "json":
        print(json.dumps({"sound": sound, "findings": [_json(one) for one in found]}, indent=2))
    else:
        _show(found)
    return 0 if sound else 1


async def _look(store: Store, quota: int) -> tuple[Finding, ...]:
    client, keys = store.open()
    async with client:
        return examine(await gather(client, keys, store.endpoints, quota_bytes=quota))


def _json(one: Finding) -> dict[str, str]:
    return {"level": one.level.value, "about": one.about, "said": one.said, "next_step": one.next_step}


def _show(found: Sequence[Finding]) -> None:
    width = max(len(one.about) for one in found)
    for one in found:
        print(f"{_MARK[one.level]}  {one.about.ljust(width)}  {one.said}")
        if one.next_step:
            print(f"      {' ' * width}  -> {one.next_step}")
    bad, warned = (sum(one.level is level for one in found) for level in (Level.BAD, Level.WARNING))
    print(f"{bad} bad, {warned} warnings, {len(found) - bad - warned} in order.")


def _bytes(text: str) -> int:
    size = int(text) if text.isdigit() else 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes above 0")
    return size
