# SPDX-License-Identifier: Apache-2.0
"""What the command's exit status says."""

from __future__ import annotations

import enum

from tsclient.errors import AcquireTimeout, InvalidRequest, LockLost, NotFound, NotNow, TimesliceError, Unavailable


class Exit(enum.IntEnum):
    """`timeslice --help` prints this table."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 3
    NOT_FOUND = 4
    REFUSED = 5
    LOST = 6
    NO_TURN = 7
    INTERRUPTED = 130


MEANING = {
    Exit.DONE: "done",
    Exit.FAILED: "failed for another reason",
    Exit.USAGE: "the command line or the request is wrong",
    Exit.UNAVAILABLE: "no coordinator answers, or it cannot reach etcd",
    Exit.NOT_FOUND: "what is named is not there",
    Exit.REFUSED: "the state of things forbids it",
    Exit.LOST: "the turn is lost",
    Exit.NO_TURN: "the turn did not come in the time allowed",
    Exit.INTERRUPTED: "interrupted",
}


class RunExit(enum.IntEnum):
    """Of `timeslice run` where it is not the command's own; the numbers are those of timeout(1) and env(1)."""

    LOST = 123
    NO_TURN = 124
    FAILED = 125
    CANNOT_EXECUTE = 126
    NO_SUCH_COMMAND = 127


RUN_MEANING = {
    RunExit.LOST: "the turn was lost, and the command stopped for it",
    RunExit.NO_TURN: "no turn came within --wait; the command was not run",
    RunExit.FAILED: "timeslice itself failed; the command was not run",
    RunExit.CANNOT_EXECUTE: "the command cannot be executed",
    RunExit.NO_SUCH_COMMAND: "there is no such command",
}


def of(error: TimesliceError) -> Exit:
    """The exit status for an error."""
    match error:
        case InvalidRequest():
            return Exit.USAGE
        case Unavailable():
            return Exit.UNAVAILABLE
        case NotFound():
            return Exit.NOT_FOUND
        case NotNow():
            return Exit.REFUSED
        case LockLost():
            return Exit.LOST
        case AcquireTimeout():
            return Exit.NO_TURN
        case _:
            return Exit.FAILED
