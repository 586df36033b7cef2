# SPDX-License-Identifier: Apache-2.0
"""Sessions that are still open when the program ends are closed then, in bounded time."""

from __future__ import annotations

import atexit
import time
import weakref

from tsclient import background, forks
from tsclient.engine import Engine, Reply
from tsclient.helper import hub
from tsclient.waiting import BlockingInbox

AT_EXIT = 2.0  # s for all of them; a session that is not closed by then ends by its time to live

_open: weakref.WeakSet[Engine] = weakref.WeakSet()


def at_exit(engine: Engine) -> None:
    """Close it at the end of the program, if it is still there."""
    _open.add(engine)


forks.in_child(_open.clear)  # they are the parent's


@atexit.register
def _close_all() -> None:
    deadline = time.monotonic() + AT_EXIT
    for engine in list(_open):
        if not engine.ended:
            inbox: BlockingInbox[Reply] = BlockingInbox()
            inbox.drive(engine.closing(inbox, max(0.1, deadline - time.monotonic())))
    hub.close()
    background.stop(max(0.1, deadline - time.monotonic()))
