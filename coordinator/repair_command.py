# SPDX-License-Identifier: Apache-2.0
"""`timeslice repair`: put the ledger right by hand, while no replica runs."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from coordinator.repair import repair_restored
from ledger.errors import LedgerError
from ledger.etcd.errors import EtcdError
from ledger.options import add_store_options, store_from

_EPILOG = """\
after a snapshot of etcd was restored:
  etcdutl snapshot restore FILE --bump-revision 1000000000 --mark-compacted …
  timeslice repair --restored --etcd 127.0.0.1:2379
  … then start the coordinators again. Each group's resident counts as unknown until a switch has shown
  who is on; granted turns are over, and their clients are told that they have lost them.
"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "repair",
        help="put the ledger right after etcd was restored",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--restored", action="store_true", required=True, help="etcd was restored from a snapshot; no replica runs"
    )
    add_store_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    return asyncio.run(_repair(args))


async def _repair(args: argparse.Namespace) -> int:
    try:
        client, keys = store_from(args).open()
        async with client:
            done = await repair_restored(client, keys)
    except (LedgerError, EtcdError, ValueError, OSError) as error:
        print(f"timeslice repair: {error}", file=sys.stderr)
        return 1
    for one in done:
        print(f"{one.group}: {one.what}")
    print(f"{len(done)} groups repaired; start the coordinators now.")
    return 0
