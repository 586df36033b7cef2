# SPDX-License-Identifier: Apache-2.0
"""`timeslice group`: make, change and delete groups."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tsclient.cli.options import add_command

if TYPE_CHECKING:
    from tsclient.cli.options import Subparsers


def register(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands, "group", None, summary="make, change and delete groups",
        examples="timeslice group put trainers --node node-a=GPU-1f0c,GPU-77aa\ntimeslice group delete trainers",
    )  # fmt: skip
    actions: Subparsers = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    put = add_command(
        actions, "put", _put, summary="make a group, or change what it consists of",
        text="""\
            Make a group, or change what it consists of. Holder, resident and queue stay; the change comes into
            force when nobody holds the turn, and one switch follows. S: seconds.""",
        examples="""\
            timeslice group put trainers --node node-a=GPU-1f0c,GPU-77aa --node node-b=GPU-90e1
            timeslice group put trainers --node node-a=GPU-1f0c --node-lost drop --drop-after 60
            timeslice group put trainers --node node-a=GPU-1f0c --max-hold 900""",
    )  # fmt: skip
    put.add_argument("name", metavar="NAME")
    put.add_argument(
        "--node", action="append", required=True, type=_node, metavar="NODE=DEVICE,…",
        help="a node and the UUIDs of its devices; once for each node",
    )  # fmt: skip
    put.add_argument(
        "--lost", choices=("park-or-kill", "park-only"), default="park-or-kill",
        help="what to do with a dead holder that cannot be stopped; default: %(default)s",
    )  # fmt: skip
    put.add_argument("--lost-grace", type=_seconds, default=0, metavar="S", help="how long it may resist; default: 10")
    put.add_argument(
        "--parked-ttl", type=_seconds, default=0, metavar="S", help="how long its state is kept; default: 3600"
    )
    put.add_argument(
        "--node-lost", choices=("wait", "drop"), default="wait",
        help="what to do while a node is away; default: %(default)s",
    )  # fmt: skip
    put.add_argument("--drop-after", type=_seconds, default=0, metavar="S", help="with --node-lost drop; default: 60")
    put.add_argument("--prepare-time", type=_seconds, default=0, metavar="S", help="allowed for PREPARE; default: 30")
    put.add_argument(
        "--commit-time", type=_seconds, default=0, metavar="S", help="allowed for COMMIT and RELEASE; default: 600"
    )
    put.add_argument(
        "--max-hold", type=_seconds, default=0, metavar="S", help="evict a holder after that time; default: never"
    )
    put.add_argument("--aging", action="store_true", help="let waiting raise the priority")
    put.add_argument("--force", action="store_true", help="although jobs are parked on nodes that leave")

    delete = add_command(
        actions, "delete", _delete, summary="delete a group once nobody holds it",
        text="""\
            Delete a group. Its holder keeps its turn until it yields; who waits is refused. Refused while jobs
            are parked, since their state would be lost, unless forced: then their processes stay off the devices
            for good, and are on no record any more. See `timeslice get jobs NAME` for them first, and end them.""",
        examples="timeslice group delete trainers\ntimeslice group delete trainers --force",
    )  # fmt: skip
    delete.add_argument("name", metavar="NAME")
    delete.add_argument("--force", action="store_true", help="give up the state of parked jobs")


def _node(text: str) -> tuple[str, list[str]]:
    node, found, devices = text.partition("=")
    listed = [device.strip() for device in devices.split(",") if device.strip()]
    if not found or not node or not listed:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NODE=DEVICE,DEVICE")
    return node, listed


def _seconds(text: str) -> int:
    """Milliseconds from seconds."""
    try:
        ms = round(float(text) * 1000)
    except (ValueError, OverflowError):
        ms = 0
    if not 0 < ms < 1 << 63:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return ms


def _put(args: argparse.Namespace) -> None:
    from timeslice_proto.v1 import coordinator_pb2, records_pb2
    from tsclient.cli.calls import call

    lost = {
        "park-or-kill": records_pb2.LOST_POLICY_PARK_OR_KILL,
        "park-only": records_pb2.LOST_POLICY_PARK_ONLY,
    }
    node_lost = {"wait": records_pb2.NODE_LOST_POLICY_WAIT, "drop": records_pb2.NODE_LOST_POLICY_DROP}
    request = coordinator_pb2.PutGroupRequest(
        name=args.name,
        nodes=[records_pb2.NodeDevices(node=node, devices=devices) for node, devices in args.node],
        policy=records_pb2.Policy(
            lost=lost[args.lost],
            lost_grace_ms=args.lost_grace,
            parked_ttl_ms=args.parked_ttl,
            node_lost=node_lost[args.node_lost],
            drop_after_ms=args.drop_after,
            prepare_ms=args.prepare_time,
            commit_ms=args.commit_time,
            aging=args.aging,
            max_hold_ms=args.max_hold,
        ),
        force=args.force,
    )
    found = call(args, lambda stub, left: stub.PutGroup(request, timeout=left))
    for state in found.nodes:
        if not state.alive:
            print(
                f"timeslice: no agent of node {state.node} is there: nothing is switched until it is. Start it, or put "
                "the group anew if that is no node's name.",
                file=sys.stderr,
            )
    print(f"Group {args.name} is to have {sum(len(d) for _, d in args.node)} devices on {len(args.node)} nodes.")


def _delete(args: argparse.Namespace) -> None:
    from timeslice_proto.v1 import coordinator_pb2
    from tsclient.cli.calls import call

    request = coordinator_pb2.DeleteGroupRequest(name=args.name, force=args.force)
    call(args, lambda stub, left: stub.DeleteGroup(request, timeout=left))
    print(f"Group {args.name} goes as soon as nobody holds it.")
