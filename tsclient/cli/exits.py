# SPDX-License-Identifier: Apache-2.0
"""What the command's exit status says."""

from __future__ import annotations

import enum

from tsclient.errors import InvalidRequest, NotFound, NotNow, TimesliceError, Unavailable


class Exit(enum.IntEnum):
    """`timeslice --help` prints this table."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 3
    NOT_FOUND = 4
    REFUSED = 5
    INTERRUPTED = 130


MEANING = {
    Exit.DONE: "done",
    Exit.FAILED: "failed for another reason",
    Exit.USAGE: "the command line or the request is wrong",
    Exit.UNAVAILABLE: "no coordinator answers, or it cannot reach etcd",
    Exit.NOT_FOUND: "what is named is not there",
    Exit.REFUSED: "the state of things forbids it",
    Exit.INTERRUPTED: "interrupted",
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
        case _:
            return Exit.FAILED
