# SPDX-License-Identifier: Apache-2.0
"""The agent's helper processes: one for each process that is driven, and one that looks.

A driver call can hang for ever, and then only a process can be ended. So every call has a deadline, after which its
helper is killed; the call itself may still come to pass in the driver, hence whoever goes on asks for the state first.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from typing import Any

from nodeagent import procfs
from nodeagent.backends.driver import DriverError, NoContext, Progress
from nodeagent.backends.drivers import DriverChoice

_log = logging.getLogger(__name__)
_LINE_LIMIT = 16 << 20
LOOKER = 0
"""The helper of no process in particular: it asks what is on the devices."""


class HelperTimedOut(DriverError):
    """The call did not end within its time, and its helper was killed."""


class HelperDied(DriverError):
    """The helper ended in the middle of a call. What the call has done is unknown."""


class Helper:
    """One helper process. Calls of one helper are made one after the other."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        self._process, self._calls = process, process.stdin
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Any], Progress | None]] = {}
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, choice: DriverChoice, lock_fds: Sequence[int]) -> Helper:
        command = [sys.executable, "-m", "nodeagent.helper_main", choice.name, choice.socket]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, pass_fds=tuple(lock_fds), start_new_session=True, limit=_LINE_LIMIT
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self._reader.done()

    async def call(
        self, name: str, pid: int, *, within: float, progress: Progress | None = None, **arguments: Any
    ) -> Any:
        """Make one driver call. Raises `DriverError`, of which `HelperTimedOut` and `HelperDied` end the helper."""
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (answer, progress)
        try:
            async with asyncio.timeout(within):
                try:
                    request = {"id": number, "call": name, "pid": pid, **arguments}
                    self._calls.write((json.dumps(request) + "\n").encode())
                    await self._calls.drain()
                except ConnectionError:
                    await self._reader  # which answers every waiting call with the end of the helper
                return await answer
        except TimeoutError:
            await self.kill()
            raise HelperTimedOut(name, pid, f"it did not end within {within:.1f} s") from None
        except DriverError as error:
            # Made without a name, where the helper's end was seen.
            raise HelperDied(name, pid, error.why) if isinstance(error, HelperDied) else error from None
        finally:
            del self._waiting[number]

    async def close(self) -> None:
        """Let it end its call and exit: its pipe closes. Waits for that, however long the call lasts."""
        self._calls.close()
        await self._process.wait()
        await self._reader

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reader

    async def _read(self) -> None:
        assert self._process.stdout is not None
        # A line without its end is what a helper was saying when it died.
        while (line := await self._process.stdout.readline()).endswith(b"\n"):
            message = json.loads(line)
            answer, progress = self._waiting.get(message["id"], (None, None))
            if answer is None or answer.done():
                continue
            if "progress" in message:
                if progress is not None:
                    progress(*message["progress"])
            elif "error" in message:
                call, pid, why, final, no_context = message["error"]
                kind = NoContext if no_context else DriverError
                answer.set_exception(kind(call, pid, why, final=final))
            else:
                answer.set_result(message["ok"])
        for answer, _ in self._waiting.values():
            if not answer.done():
                answer.set_exception(HelperDied("", 0, "its helper ended"))


class HelperPool:
    """Helpers by the pid that they drive, started when first needed and kept warm."""

    def __init__(self, choice: DriverChoice, lock_fds: Sequence[int]) -> None:
        self._choice, self._lock_fds = choice, tuple(lock_fds)
        self._helpers: dict[int, Helper] = {}
        self._turn: dict[int, asyncio.Lock] = {}

    async def call(
        self, name: str, pid: int, *, within: float, progress: Progress | None = None, **arguments: Any
    ) -> Any:
        """Make a driver call by the helper of ``pid``; the wait for its earlier calls counts in ``within``."""
        limit = asyncio.get_running_loop().time() + within
        turn = self._turn.setdefault(pid, asyncio.Lock())
        try:
            async with asyncio.timeout_at(limit):
                await turn.acquire()
        except TimeoutError:
            raise HelperTimedOut(name, pid, "its helper is busy with another call") from None
        try:
            helper = await self._helper(pid)
            begun = asyncio.get_running_loop().time()
            answer = await helper.call(name, pid, within=max(limit - begun, 0.0), progress=progress, **arguments)
            if pid != LOOKER:
                took = asyncio.get_running_loop().time() - begun
                _log.debug("Process %d: %s took %.1f ms.", pid, name, took * 1000)
            return answer
        finally:
            turn.release()

    async def warm(self, pid: int) -> None:
        """Start the helper of ``pid`` now, so that its first call need not wait for that."""
        async with self._turn.setdefault(pid, asyncio.Lock()):
            await self._helper(pid)

    async def forget_dead(self) -> None:
        """End the helpers of processes that have ended. Those of living ones stay: their end would unlock."""
        dead = [pid for pid in self._helpers if pid != LOOKER and procfs.process(pid) is None]
        # All are taken out before the first is waited for: another group's look may come here meanwhile.
        idle = [pid for pid in dead if not self._turn[pid].locked()]
        ending = [self._helpers.pop(pid) for pid in idle]
        for pid in idle:
            del self._turn[pid]
        await asyncio.gather(*(helper.close() for helper in ending))

    async def close(self) -> None:
        """End all, each after its call in flight."""
        helpers, self._helpers = list(self._helpers.values()), {}
        await asyncio.gather(*(one.close() for one in helpers))

    async def _helper(self, pid: int) -> Helper:
        helper = self._helpers.get(pid)
        if helper is None or not helper.alive:
            if helper is not None:
                await helper.kill()
            helper = await Helper.start(self._choice, self._lock_fds)
            self._helpers[pid] = helper
            _log.debug("Helper %d drives process %d.", helper.pid, pid)
        return helper
