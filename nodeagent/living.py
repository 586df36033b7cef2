# SPDX-License-Identifier: Apache-2.0
"""Which of the processes that are known are still there, without a question to /proc for each at each look.

The kernel is asked once about each (pidfd_open(2), and whether it is that very process), and says by itself when one
has ended. A pid that another process gets in the meantime changes nothing: the handle stays that of the first.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterable

from ledger.records import Process
from nodeagent import procfs


class Living:
    """Of one agent. Keeps a handle for each process that it was asked about, until that has ended."""

    def __init__(self) -> None:
        self._handles: dict[Process, int] = {}
        self._processes: dict[int, Process] = {}  # by handle
        self._ended = select.epoll()

    def among(self, processes: Iterable[Process]) -> list[Process]:
        """Those of ``processes`` that are alive now."""
        # A handle tells of its process's end for as long as it is open, so nothing is lost between two questions.
        for handle, _ in self._ended.poll(0):
            self._forget(handle)
        return [one for one in processes if one in self._handles or self._meet(one)]

    def close(self) -> None:
        """Give up all handles; whoever is asked about again is met anew."""
        for handle in tuple(self._processes):
            self._forget(handle)

    def _meet(self, one: Process) -> bool:
        try:
            handle = os.pidfd_open(one.pid)
        except ProcessLookupError:
            return False
        except OSError:  # no descriptor is left, or the kernel is too old: then /proc is asked each time
            return procfs.alive(one)
        if not procfs.alive(one):
            os.close(handle)
            return False
        # It was there before the handle was, and is there still: so the handle is its.
        try:
            self._ended.register(handle, select.EPOLLIN)
        except OSError:  # a handle that nobody listens to would say for ever that it is alive
            os.close(handle)
            return True
        self._handles[one], self._processes[handle] = handle, one
        return True

    def _forget(self, handle: int) -> None:
        del self._handles[self._processes.pop(handle)]
        self._ended.unregister(handle)
        os.close(handle)
