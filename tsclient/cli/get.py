# SPDX-License-Identifier: Apache-2.0
"""`timeslice get`: what there is."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tsclient.cli.options import add_command
from tsclient.cli.show import Row, print_json, print_table

if TYPE_CHECKING:
    from timeslice_proto.v1 import coordinator_pb2, records_pb2
    from tsclient.cli.options import Subparsers


def register(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands, "get", None, summary="what there is: groups, queue, nodes, jobs",
        examples="timeslice get groups\ntimeslice get queue trainers --watch\ntimeslice get nodes -o json",
    )  # fmt: skip
    kinds: Subparsers = parser.add_subparsers(title="kinds", metavar="KIND", required=True)

    groups = add_command(
        kinds, "groups", _groups, summary="groups, who has their turns, and what they do",
        examples="timeslice get groups\ntimeslice get groups --watch -o json",
    )  # fmt: skip
    queue = add_command(
        kinds, "queue", _queue, summary="who holds a group and who waits for it, in order",
        examples="timeslice get queue trainers\ntimeslice get queue trainers --watch",
    )  # fmt: skip
    queue.add_argument("group", metavar="GROUP")
    nodes = add_command(
        kinds, "nodes", _nodes, summary="nodes and their agents", examples="timeslice get nodes -o json"
    )
    jobs = add_command(
        kinds, "jobs", _jobs, summary="jobs, where they are and whether they are sound",
        examples="timeslice get jobs\ntimeslice get jobs trainers",
    )  # fmt: skip
    jobs.add_argument("group", metavar="GROUP", nargs="?", default="", help="default: all groups")
    for kind in (groups, queue, nodes, jobs):
        kind.add_argument("-o", "--output", choices=("table", "json"), default="table")
    for kind in (groups, queue):
        kind.add_argument("-w", "--watch", action="store_true", help="then each change, until interrupted")


def _groups(args: argparse.Namespace) -> None:
    from timeslice_proto.v1 import coordinator_pb2
    from tsclient.cli.calls import call, stream

    if args.watch:
        for group in stream(args, lambda stub: stub.WatchGroups(coordinator_pb2.WatchGroupsRequest())):
            if args.output == "json":
                print_json(group, one_line=True)
            else:
                print_groups([group])
        return
    listed = call(args, lambda stub, left: stub.ListGroups(coordinator_pb2.ListGroupsRequest(), timeout=left))
    if args.output == "json":
        print_json(listed)
    else:
        print_groups(listed.groups)


def _queue(args: argparse.Namespace) -> None:
    from timeslice_proto.v1 import coordinator_pb2
    from tsclient.cli.calls import call, stream

    def show() -> None:
        group = call(args, lambda stub, left: stub.GetGroup(request, timeout=left))
        if args.output == "json":
            print_json(group, one_line=args.watch)
        else:
            print_table(_QUEUE_HEADINGS, [_ticket_row(place, entry) for place, entry in enumerate(group.queue)])

    request = coordinator_pb2.GetGroupRequest(name=args.group)
    if not args.watch:
        show()
        return
    watched = coordinator_pb2.WatchGroupsRequest(names=[args.group])
    show()
    for change in stream(args, lambda stub: stub.WatchGroups(watched)):
        if change.deleted:
            return
        show()


def _nodes(args: argparse.Namespace) -> None:
    from timeslice_proto.v1 import coordinator_pb2
    from tsclient.cli.calls import call

    listed = call(args, lambda stub, left: stub.ListNodes(coordinator_pb2.ListNodesRequest(), timeout=left))
    if args.output == "json":
        print_json(listed)
        return
    print_table(
        ("NODE", "AGENT", "DEVICES", "BACKENDS", "DRAINING"),
        [
            (
                node.node,
                "up" if node.alive else "away",
                ",".join(device.uuid for device in node.agent.devices) or "-",
                ",".join(node.agent.capabilities) or "-",
                (node.drain_why or "yes") if node.draining else "-",
            )
            for node in listed.nodes
        ],
    )


def _jobs(args: argparse.Namespace) -> None:
    from timeslice_proto.v1 import coordinator_pb2, records_pb2
    from tsclient.cli.calls import call

    request = coordinator_pb2.ListJobsRequest(group=args.group)
    listed = call(args, lambda stub, left: stub.ListJobs(request, timeout=left))
    if args.output == "json":
        print_json(listed)
        return
    print_table(
        ("GROUP", "JOB", "STATE", "PROCESSES", "MIB", "HEALTH"),
        [
            (
                job.group,
                job.job,
                "holder" if job.holder else "resident" if job.resident else "off",
                job.processes,
                job.bytes >> 20,
                f"quarantined: {job.record.why}" if job.record.health == records_pb2.HEALTH_QUARANTINED else "ok",
            )
            for job in listed.jobs
        ],
    )


_GROUP_HEADINGS = ("GROUP", "PHASE", "HOLDER", "RESIDENT", "TOKEN", "WAITING", "NOTE")
_QUEUE_HEADINGS = ("PLACE", "JOB", "STATE", "PRIORITY", "SESSION", "NOTE")


def print_groups(groups: Iterable[coordinator_pb2.Group]) -> None:
    """The table of `timeslice get groups`."""
    print_table(_GROUP_HEADINGS, [_group_row(group) for group in groups])


def _group_row(group: coordinator_pb2.Group) -> Row:
    from timeslice_proto.v1 import records_pb2

    if group.deleted:
        return (group.name, "deleted", "-", "-", "-", "-", group.note)
    turn = group.turn
    phase = records_pb2.Phase.Name(turn.phase).removeprefix("PHASE_").lower()
    return (
        group.name,
        f"{phase}, paused" if turn.paused else phase,
        turn.holder.job or "-",
        _resident(turn.resident),
        turn.token,
        group.waiting,
        group.note,
    )


def _resident(resident: records_pb2.Resident) -> str:
    from timeslice_proto.v1 import records_pb2

    if resident.kind == records_pb2.RESIDENT_KIND_JOB:
        return resident.job
    return records_pb2.ResidentKind.Name(resident.kind).removeprefix("RESIDENT_KIND_").lower()


def _ticket_row(place: int, entry: coordinator_pb2.QueueEntry) -> Row:
    from timeslice_proto.v1 import records_pb2

    state = records_pb2.TicketState.Name(entry.ticket.state).removeprefix("TICKET_STATE_").lower()
    return (place, entry.job, state, entry.ticket.priority, entry.ticket.session, entry.ticket.why)
