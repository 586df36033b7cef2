# SPDX-License-Identifier: Apache-2.0
"""`timeslice status`: which coordinators answer, what the groups do, and the tickets that are kept on this machine."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from tsclient.cli.exits import Exit
from tsclient.cli.options import add_command
from tsclient.cli.show import print_table
from tsclient.errors import LockLost, NotFound, TimesliceError

if TYPE_CHECKING:
    from tsclient.cli.options import Subparsers
    from tsclient.cli.tickets import Held

_TICKET_SECONDS = 2.0


def register(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands, "status", _status, summary="coordinators, groups, and this machine's tickets",
        text="""\
            Show which coordinators answer, what the groups do, and the tickets of `timeslice acquire` that this user
            has on this machine. With --ticket, that one alone: its exit status says whether the turn is held.""",
        examples="""\
            timeslice status
            timeslice status --ticket "$ticket" || exit""",
    )  # fmt: skip
    parser.add_argument("--ticket", metavar="TICKET", help="what `timeslice acquire` has printed")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")


def _status(args: argparse.Namespace) -> int:
    from tsclient.cli import tickets

    if args.ticket is not None:
        held = tickets.ask(args.ticket, "status", args.timeout)
        if args.output == "json":
            print(json.dumps(asdict(held)))
        else:
            _print_tickets([(held.ticket, held)])
        return Exit.DONE
    return _everything(args)


def _everything(args: argparse.Namespace) -> int:
    from google.protobuf.json_format import MessageToDict

    from tsclient.cli.calls import answers
    from tsclient.cli.get import print_groups

    coordinators, groups = answers(args)
    kept = _kept()
    if args.output == "json":
        form = {
            "coordinators": [{"endpoint": one, "error": str(error or "")} for one, error in coordinators],
            "groups": [MessageToDict(group, preserving_proto_field_name=True) for group in groups or ()],
            "tickets": [asdict(held) if not isinstance(held, TimesliceError) else {"ticket": ticket, "error": str(held)}
                        for ticket, held in kept],
        }  # fmt: skip
        print(json.dumps(form, indent=2))
    else:
        rows = [(endpoint, "-" if error else "answers", error or "-") for endpoint, error in coordinators]
        print_table(("COORDINATOR", "STATE", "NOTE"), rows)
        if groups is not None:
            print()
            print_groups(groups)
        if kept:
            print()
            _print_tickets(kept)
    return Exit.DONE if groups is not None else Exit.UNAVAILABLE


def _kept() -> list[tuple[str, Held | TimesliceError]]:
    from tsclient.cli import tickets

    found: list[tuple[str, Held | TimesliceError]] = []
    for ticket in tickets.all_here():
        try:
            found.append((ticket, tickets.ask(ticket, "status", _TICKET_SECONDS)))
        except NotFound:
            continue  # it was given back meanwhile, or its keeper was killed
        except TimesliceError as error:
            found.append((ticket, error))
    return found


def _print_tickets(kept: list[tuple[str, Held | TimesliceError]]) -> None:
    rows = []
    for ticket, held in kept:
        if isinstance(held, TimesliceError):
            rows.append((ticket, "-", "-", "-", "lost" if isinstance(held, LockLost) else "unknown", "-"))
        else:
            rows.append((ticket, held.group, held.job, str(held.token), "held", str(held.bound)))
    print_table(("TICKET", "GROUP", "JOB", "TOKEN", "STATE", "BOUND TO"), rows)
