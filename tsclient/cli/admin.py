# SPDX-License-Identifier: Apache-2.0
"""`timeslice pause`, `resume`, `evict`, `unquarantine` and `drain-node`: an operator's hands on the lock."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tsclient.cli.options import add_command

if TYPE_CHECKING:
    from tsclient.cli.options import Subparsers


def register(commands: Subparsers) -> None:
    """Add the commands."""
    pause = add_command(
        commands, "pause", _pause, summary="grant nothing more in a group",
        text="""\
            Grant nothing more. The holder keeps its turn, the resident stays, the queue keeps its order and
            grows. A switch that has begun to commit is finished.""",
        examples="timeslice pause trainers",
    )  # fmt: skip
    pause.add_argument("group", metavar="GROUP")

    resume = add_command(
        commands, "resume", _resume, summary="end a pause",
        text="End a pause: the head of the queue is served. Holder, resident and queue are as they were.",
        examples="timeslice resume trainers",
    )  # fmt: skip
    resume.add_argument("group", metavar="GROUP")

    evict = add_command(
        commands, "evict", _evict, summary="take the turn from its holder",
        text="""\
            Take the turn from its holder, which is told, and is taken off the accelerators by the next switch.
            A resident that cannot be saved is killed by it. The queue keeps its order.""",
        examples="timeslice evict trainers job-7 --why 'hangs since noon'",
    )  # fmt: skip
    evict.add_argument("group", metavar="GROUP")
    evict.add_argument("job", metavar="JOB")
    evict.add_argument("--why", default="by an operator", help="for the coordinators' log; default: %(default)s")

    unquarantine = add_command(
        commands, "unquarantine", _unquarantine, summary="declare a quarantined job sound again",
        text="""\
            Declare a quarantined job sound again: it may acquire anew. Nothing else changes. Refused while a node
            that its group went on without may still have the job on its devices: start its agent, which clears
            them, or insist.""",
        examples="timeslice unquarantine trainers job-7\ntimeslice unquarantine trainers job-7 --force",
    )  # fmt: skip
    unquarantine.add_argument("group", metavar="GROUP")
    unquarantine.add_argument("job", metavar="JOB")
    unquarantine.add_argument("--force", action="store_true", help="the machine with its processes is gone for good")

    drain = add_command(
        commands, "drain-node", _drain, summary="bring no more jobs on to a node",
        text="""\
            No switch brings a job on to that node any more, until it is undrained. Holder, resident and queue
            stay; a resident may go on with turns that move nothing.""",
        examples="timeslice drain-node node-a --why 'new driver'\ntimeslice drain-node node-a --undo",
    )  # fmt: skip
    drain.add_argument("node", metavar="NODE")
    drain.add_argument("--why", default="by an operator", help="default: %(default)s")
    drain.add_argument("--undo", action="store_true", help="bring jobs on to it again")


def _pause(args: argparse.Namespace) -> None:
    from timeslice_proto.v1 import coordinator_pb2
    from tsclient.cli.calls import call

    request = coordinator_pb2.PauseRequest(group=args.group)
    call(args, lambda stub, left: stub.Pause(request, timeout=left))
    print(f"Group {args.group} grants nothing more, until `timeslice resume {args.group}`.")


def _resume(args: argparse.Namespace) -> None:
    from timeslice_proto.v1 import coordinator_pb2
    from tsclient.cli.calls import call

    request = coordinator_pb2.ResumeRequest(group=args.group)
    call(args, lambda stub, left: stub.Resume(request, timeout=left))
    print(f"Group {args.group} serves its queue.")


def _evict(args: argparse.Namespace) -> None:
    from timeslice_proto.v1 import coordinator_pb2
    from tsclient.cli.calls import call

    request = coordinator_pb2.EvictRequest(group=args.group, job=args.job, why=args.why)
    # Asked twice it might hit the job's next turn.
    call(args, lambda stub, left: stub.Evict(request, timeout=left), repeatable=False)
    print(f"Job {args.job} has lost its turn in {args.group}.")


def _unquarantine(args: argparse.Namespace) -> None:
    from timeslice_proto.v1 import coordinator_pb2
    from tsclient.cli.calls import call

    request = coordinator_pb2.UnquarantineRequest(group=args.group, job=args.job, force=args.force)
    call(args, lambda stub, left: stub.Unquarantine(request, timeout=left))
    print(f"Job {args.job} may acquire in {args.group} again.")


def _drain(args: argparse.Namespace) -> None:
    from timeslice_proto.v1 import coordinator_pb2
    from tsclient.cli.calls import call

    request = coordinator_pb2.DrainNodeRequest(node=args.node, why=args.why, undrain=args.undo)
    call(args, lambda stub, left: stub.DrainNode(request, timeout=left))
    print(f"Node {args.node} {'takes jobs again' if args.undo else 'takes no more jobs'}.")
