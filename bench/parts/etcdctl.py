# SPDX-License-Identifier: Apache-2.0
"""Part c: etcd's own lock, handed from one ``etcdctl lock`` to the next. It is written in Go, and moves no devices."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time

from bench.measure import Case, Sample
from bench.parts.names import ETCDCTL, ETCDCTL_START
from bench.store import Store
from bench.system import Bench

_NAME = "/etcdctl-lock"
_WITHIN = 30.0


class EtcdctlLock:
    """One process has the lock and another waits for it, always; each hand-off starts the next that waits.

    A hand-off is from the holder's SIGTERM, by which it gives the lock back, until the waiter says that it has it: the
    waiter runs already. How long a process takes from its start until it waits is a case of its own.
    """

    def __init__(self, bench: Bench, stack: contextlib.ExitStack) -> None:
        tool = bench.etcd.binary.tool("etcdctl")
        self._command = [str(tool), "--endpoints", bench.etcd_option, "lock", _NAME]
        self._store: Store = bench.store
        self._stack = stack
        self._started = 0.0
        self._holder = self._start()
        self._line(self._holder)
        self._waiter = self._start()

    def cases(self) -> list[Case]:
        """To be taken by turns or alone, in any order."""
        return [Case(ETCDCTL, self._hand_off), Case(ETCDCTL_START, lambda: Sample(self._started))]

    def _hand_off(self) -> Sample:
        revision = self._store.revision()
        began = time.monotonic()
        self._holder.send_signal(signal.SIGTERM)
        self._line(self._waiter)
        took = time.monotonic() - began
        self._holder.wait(_WITHIN)
        revisions = self._store.revision() - revision
        self._holder, self._waiter = self._waiter, self._start()
        return Sample(took, revisions)

    def _start(self) -> subprocess.Popen[bytes]:
        """One more in the queue."""
        before, began = self._store.count(_NAME), time.monotonic()
        # Without the launcher that ends others with this process, whose own start would count: this one ends by itself
        # when etcd is gone.
        process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._stack.callback(_end, process)
        self._store.wait_count(_NAME, before + 1)
        self._started = time.monotonic() - began
        return process

    def _line(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(f"etcdctl lock has ended with {process.wait(_WITHIN)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(_WITHIN)
    assert process.stdout is not None
    process.stdout.close()
