# SPDX-License-Identifier: Apache-2.0
"""`timeslice run`: a command under the lock, which need not know of it."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from tsclient.cli.exits import RUN_MEANING, RunExit
from tsclient.cli.options import add_command
from tsclient.cli.waiting import add_waiting, tell, wanted
from tsclient.errors import AcquireTimeout, BadRequest, LockLost, TimesliceError

if TYPE_CHECKING:
    from tsclient.cli.options import Subparsers
    from tsclient.cli.supervised import Supervised
    from tsclient.cli.waiting import Wanted
    from tsclient.turn import Turn

_TICK = 0.25  # s; between two looks at a turn that the command cannot look at itself

_TEXT = """\
Wait for a turn, run a command, and give the turn back when it ends. The command, which need not know of it, has
TIMESLICE_GROUP, TIMESLICE_JOB_ID and TIMESLICE_FENCING_TOKEN in its environment, by which the node's agent also knows
its processes. With --node they are registered, all that descend from the command as well.

SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 and SIGUSR2 are forwarded to the command; in the foreground of a terminal
Ctrl-C and Ctrl-\\ reach it as they are.

If the turn is lost, the command and all that descends from it get SIGTERM, after --grace SIGKILL. With --on-loss keep
it runs on, off the accelerators until its job, which stands in the queue again, has another turn. If timeslice itself
is killed, the turn ends with its session.

exit status: the command's own; 128 + N if signal N has ended it; or""" + "".join(
    f"\n  {status:>3}  {meaning}" for status, meaning in RUN_MEANING.items()
)


def register(commands: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        commands, "run", _run, summary="run a command under the lock", text=_TEXT,
        examples="""\
            timeslice run --group trainers --job job-7 -- python train.py --epochs 3
            timeslice run --group trainers --job eval --wait 600 --priority 1 -- ./evaluate.sh
            timeslice run --group trainers --job job-7 --node $(hostname) -- torchrun --nproc-per-node 8 train.py""",
    )  # fmt: skip
    parser.usage = "timeslice run --group GROUP --job JOB [options] -- COMMAND [ARGUMENT …]"
    add_waiting(parser)
    parser.add_argument(
        "--node", default=os.environ.get("TIMESLICE_NODE", ""), metavar="NODE",
        help="this node, by the name that its agent has; default: TIMESLICE_NODE; without it nothing is registered",
    )  # fmt: skip
    parser.add_argument(
        "--on-loss", choices=("stop", "keep"), default="stop",
        help="what becomes of the command when the turn is lost; default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--grace", type=float, default=10.0, metavar="S", help="from SIGTERM to SIGKILL; default: %(default)g"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND …", help="what to run")


def _run(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        print("timeslice run: no command is given. Write it after `--`.", file=sys.stderr)
        return RunExit.FAILED
    try:
        return _under_the_lock(args, command)
    except TimesliceError as error:
        print(f"timeslice run: {error}", file=sys.stderr)
        return RunExit.NO_TURN if isinstance(error, AcquireTimeout) else RunExit.FAILED


def _under_the_lock(args: argparse.Namespace, command: list[str]) -> int:
    import tsclient
    from tsclient.cli.registered import Registered
    from tsclient.cli.supervised import Supervised, ends_by_signal

    want = wanted(args)
    if not args.grace >= 0:
        raise BadRequest(f"--grace {args.grace:g} is no time to wait.", next_step="Give seconds, 0 or more.")
    with (
        ends_by_signal(),
        tsclient.connect(want.endpoints, want.job, want.ttl, connect_timeout=want.timeout) as client,
    ):
        turn = client.acquire(
            want.group, timeout=want.wait, priority=want.priority, if_held=want.if_held, on_progress=tell
        )
        supervised = Supervised(command, {**os.environ, **_environment(want, turn)})
        try:
            node = Registered(args, want, args.node, supervised.tree) if args.node else contextlib.nullcontext()
            with node:
                watch = _Watch(turn, supervised, args.grace if args.on_loss == "stop" else None)
                supervised.go()
                status = supervised.run(_TICK, watch.look)
        except BaseException:
            supervised.kill()
            raise
        return _end(turn, status, stopped=watch.stopped)


def _environment(want: Wanted, turn: Turn) -> dict[str, str]:
    """What the command is told beside its caller's environment."""
    told = {"TIMESLICE_GROUP": want.group, "TIMESLICE_JOB_ID": want.job, "TIMESLICE_FENCING_TOKEN": str(turn.token)}
    return told if want.endpoints is None else {**told, "TIMESLICE_ENDPOINTS": want.endpoints}


def _end(turn: Turn, status: int, *, stopped: bool) -> int:
    try:
        turn.yield_()
    except LockLost as lost:
        print(f"timeslice run: {lost}", file=sys.stderr)
        return RunExit.LOST if stopped else status
    except TimesliceError as error:
        # The command has done its work; the turn ends with the session, which is closed next.
        print(f"timeslice run: the command has ended, and the turn was not given back yet: {error}", file=sys.stderr)
    return status


class _Watch:
    """Stops the command once its turn is lost: SIGTERM first, after the grace SIGKILL.

    Attributes:
        stopped: whether that has begun.
    """

    def __init__(self, turn: Turn, supervised: Supervised, grace: float | None) -> None:
        self._turn, self._supervised, self._grace = turn, supervised, grace
        self._told = False
        self._kill_at = math.inf
        self.stopped = False

    def look(self) -> None:
        """To be called often."""
        if self._turn.lost and not self._told:
            self._told = True
            if self._grace is None:
                print("timeslice run: the turn is lost; the command goes on (--on-loss keep).", file=sys.stderr)
                return
            print(f"timeslice run: the turn is lost; the command has {self._grace:g} s to end.", file=sys.stderr)
            self.stopped = True
            with contextlib.suppress(LockLost):
                self._turn.check()  # to have seen it gives up the place that the job has been given again
            self._kill_at = time.monotonic() + self._grace
            self._supervised.tree.send(signal.SIGTERM)
        if time.monotonic() >= self._kill_at:
            self._supervised.tree.send(signal.SIGKILL)
