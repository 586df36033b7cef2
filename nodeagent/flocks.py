# SPDX-License-Identifier: Apache-2.0
"""The fence on the node: one OS lock for each device, held by whoever may call the driver.

The lock is on an open file description, which helpers inherit: it lasts as long as the agent *or any helper of it*
lives, so a new agent cannot act while an orphaned helper is still in a driver call. flock(2).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from ledger.keys import check_device

_log = logging.getLogger(__name__)
_REPORT_EVERY = 5.0


class DeviceLocks:
    """The locks of some devices, held from `acquire` to `close`, and longer by helpers that inherited them."""

    def __init__(self, folder: Path, devices: Iterable[str]) -> None:
        self._paths = [folder / f"{check_device(one)}.lock" for one in sorted(devices)]
        self._fds: list[int] = []

    @property
    def fds(self) -> Sequence[int]:
        """What helpers have to inherit."""
        return tuple(self._fds)

    async def acquire(self) -> None:
        """Wait for all, in the order of their names, without limit: nothing may be done before. Says who holds one."""
        for path in self._paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._fds.append(fd)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await self._wait(fd, path)
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)

    async def _wait(self, fd: int, path: Path) -> None:
        got = asyncio.Event()
        loop = asyncio.get_running_loop()

        def block() -> None:
            fcntl.flock(fd, fcntl.LOCK_EX)
            # The agent may have ended while it waited, and its event loop with it.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(got.set)

        # A daemon, since nothing can interrupt flock(2): an agent that is told to end must not wait for it.
        threading.Thread(target=block, daemon=True, name=f"flock {path.name}").start()
        while True:
            holders = holders_of(path)
            _log.warning("Waiting for the lock of device %s, held by %s.", path.stem, holders or "nobody to be seen")
            try:
                async with asyncio.timeout(_REPORT_EVERY):
                    await got.wait()
                return
            except TimeoutError:
                continue

    def close(self) -> None:
        """Give them up, as far as no helper holds them."""
        while self._fds:
            os.close(self._fds.pop())


def holders_of(path: Path) -> list[int]:
    """The pids of other processes that have ``path`` open: of the agent and helpers that hold its lock."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        # A process that ends, a file that it closes, or what is not ours to look into: nothing to be seen there.
        with contextlib.suppress(OSError):
            if any(_points_to(fd, path) for fd in (process / "fd").iterdir()):
                found.append(int(process.name))
    return sorted(found)


def _points_to(fd: Path, path: Path) -> bool:
    try:
        return fd.readlink() == path.absolute()
    except FileNotFoundError:
        return False  # closed since it was listed, which says nothing of the others
