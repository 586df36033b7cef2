# SPDX-License-Identifier: Apache-2.0
"""`timeslice acquire` and `timeslice yield`: a turn held by a shell script."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tsclient.cli.options import add_command
from tsclient.cli.waiting import Wanted, add_waiting, wanted
from tsclient.descriptors import above_standard
from tsclient.errors import BadRequest, InternalError

if TYPE_CHECKING:
    from tsclient.cli.options import Subparsers

_END = 15.0  # s; for a keeper that is no longer wanted

# It finds what this program has found, whatever the folder that it is started in.
_KEEPER = "import sys; order, *sys.path = sys.argv[1:]; from tsclient.cli.keeper import main; main(order)"


def register(commands: Subparsers) -> None:
    """Add the commands."""
    acquire = add_command(
        commands, "acquire", _acquire, summary="take a turn that outlives this command",
        text="""\
            Wait for a turn, print its ticket, and leave a process behind that keeps it: until `timeslice yield`, or
            until the process that it is bound to has ended, however it ends. That is the parent of this command;
            where the parent is not the one that counts (in a pipe, say), name another with --pid.

            A turn that is lost is said by `timeslice status --ticket`, and by `yield`. While the process that it is
            bound to is stopped, the turn is kept.""",
        examples="""\
            timeslice acquire --group trainers --job job-7 --wait 60 -o json
            ticket=$(timeslice acquire --group trainers --job job-7 --pid $$)
            timeslice yield --ticket "$ticket\"""",
    )  # fmt: skip
    add_waiting(acquire)
    acquire.add_argument("--pid", type=int, metavar="PID", help="by whose end it is given back; default: the parent")
    acquire.add_argument("-o", "--output", choices=("ticket", "json"), default="ticket", help="default: the ticket")

    give_back = add_command(
        commands, "yield", _yield, summary="give back the turn of a ticket",
        text="Give back the turn of a ticket of `timeslice acquire`. Says, by its exit status too, if it was lost.",
        examples='timeslice yield --ticket "$ticket"',
    )  # fmt: skip
    give_back.add_argument("--ticket", required=True, help="what `timeslice acquire` has printed")


def _acquire(args: argparse.Namespace) -> None:
    from tsclient.cli import tickets

    want = wanted(args)
    bound = os.getppid() if args.pid is None else args.pid
    try:
        handle = above_standard(os.pidfd_open(bound))
    except (OSError, ValueError) as error:
        raise BadRequest(f"There is no process {bound}.", next_step="Pass the pid of one that runs.") from error
    ticket = tickets.new()
    reads, writes = map(above_standard, os.pipe())
    with os.fdopen(reads, "rb") as report:
        try:
            keeper = _start_keeper(ticket, want, bound, handle, writes)
        finally:
            os.close(writes)
            os.close(handle)
        try:
            line = report.readline()
        except BaseException:
            _dismiss(report, keeper)
            raise
        finally:
            words = _last_words(ticket)
    if not line:
        raise InternalError(f"The process that was to keep the turn has failed: {words}")
    held = tickets.held_or_raise(json.loads(line))
    print(ticket if args.output == "ticket" else json.dumps(asdict(held)))


def _start_keeper(ticket: str, want: Wanted, bound: int, handle: int, report: int) -> subprocess.Popen[bytes]:
    from tsclient.cli.keeper import Order

    order = Order(ticket, want, bound, handle, report)
    path = [os.path.abspath(folder) for folder in sys.path if folder]  # noqa: PTH100 - strings go in and out
    with _log(ticket).open("wb") as log:
        # Nothing of this command's own is handed on: who reads its output must see the end of it.
        return subprocess.Popen(
            [sys.executable, "-c", _KEEPER, json.dumps(asdict(order)), *path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            pass_fds=(handle, report),
            start_new_session=True,
        )


def _dismiss(report: IO[bytes], keeper: subprocess.Popen[bytes]) -> None:
    """Interrupted: it sees that nobody waits any more, and takes back what it has asked for."""
    report.close()
    with contextlib.suppress(subprocess.TimeoutExpired):  # then its session's end takes it back
        keeper.wait(_END)


def _log(ticket: str) -> Path:
    from tsclient.cli import tickets

    return tickets.socket_of(ticket).with_suffix(".log")


def _last_words(ticket: str) -> str:
    log = _log(ticket)
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    log.unlink()
    return next((line for line in reversed(lines) if line.strip()), "it has said nothing")


def _yield(args: argparse.Namespace) -> None:
    from tsclient.cli import tickets

    given_back = tickets.ask(args.ticket, "yield", args.timeout)
    waiting = "" if given_back.waiters is None else f"; {given_back.waiters} waiting"
    print(f"Job {given_back.job} has given back {given_back.group}{waiting}.")
