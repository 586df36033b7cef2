# SPDX-License-Identifier: Apache-2.0
"""`timeslice repair`: put the ledger right by hand."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from coordinator.rebuild import rebuild_group
from coordinator.repair import repair_restored
from ledger.errors import LedgerError
from ledger.etcd import EtcdClient
from ledger.etcd.errors import EtcdError
from ledger.keys import Keys
from ledger.options import add_store_options, store_from

_EPILOG = """\
a group whose record cannot be read (RECORD_MALFORMED), while everything else goes on:
  timeslice repair GROUP --dry-run
  timeslice repair GROUP
  What is lost is rebuilt from what the agents have said. Nobody can say who is on, so a switch finds out; a granted
  turn is over, and its client is told; who waits keeps its place.

after a snapshot of etcd was restored, while no coordinator runs:
  etcdutl snapshot restore FILE --bump-revision 1000000000 --mark-compacted …
  timeslice repair --restored --etcd 127.0.0.1:2379
  … then start the coordinators again. Each group's resident counts as unknown until a switch has shown
  who is on; granted turns are over, and their clients are told that they have lost them.
"""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "repair",
        help="put right a group that cannot be read, or all after etcd was restored",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("group", nargs="?", metavar="GROUP", help="rebuild what cannot be read of it")
    what.add_argument("--restored", action="store_true", help="etcd was restored from a snapshot; no replica runs")
    parser.add_argument("--dry-run", action="store_true", help="with GROUP: say what would be done, and do nothing")
    add_store_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.restored and args.dry_run:
        print("timeslice repair: --dry-run is for a group.", file=sys.stderr)
        return 2
    return asyncio.run(_repair(args))


async def _repair(args: argparse.Namespace) -> int:
    try:
        client, keys = store_from(args).open()
        async with client:
            if args.restored:
                return await _restored(client, keys)
            await _rebuild(client, keys, args.group, dry_run=args.dry_run)
    except (LedgerError, EtcdError, ValueError, OSError) as error:
        print(f"timeslice repair: {error}", file=sys.stderr)
        return 1
    return 0


async def _restored(client: EtcdClient, keys: Keys) -> int:
    done = await repair_restored(client, keys)
    for one in done.repaired:
        print(f"{one.group}: {one.what}")
    print(f"{len(done.repaired)} groups repaired; start the coordinators now.")
    for error in done.unreadable:
        print(f"timeslice repair: left as it is: {error}", file=sys.stderr)
    return 1 if done.unreadable else 0


async def _rebuild(client: EtcdClient, keys: Keys, group: str, *, dry_run: bool) -> None:
    for sentence in await rebuild_group(client, keys, group, dry_run=dry_run):
        print(sentence)
    end = f"Nothing was changed: without --dry-run group {group} would go on."
    print(end if dry_run else f"Group {group} goes on.")
