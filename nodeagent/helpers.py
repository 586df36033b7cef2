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
from collections.abc import Sequence
from subprocess import PIPE
from typing import Any

from nodeagent import procfs
from nodeagent.backends.driver import DriverError, NoContext, Progress
from nodeagent.backends.drivers import DriverChoice

_log = logging.getLogger(__name__)
_STDIN, _STDOUT = 0, 1
LOOKER = 0
"""The helper of no process in particular: it asks what is on the devices."""


class HelperTimedOut(DriverError):
    """The call did not end within its time, and its helper was killed."""


class HelperDied(DriverError):
    """The helper ended in the middle of a call. What the call has done is unknown."""


class Helper(asyncio.SubprocessProtocol):
    """One helper process. Calls of one helper are made one after the other.

    Its answers are taken where their bytes arrive: a task that reads them would be one more to be woken for each call.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Any], Progress | None]] = {}
        self._said = b""  # of a line that has not ended yet
        self._silent = False
        self._gone = asyncio.Event()

    @classmethod
    async def start(cls, choice: DriverChoice, lock_fds: Sequence[int]) -> Helper:
        command = [sys.executable, "-m", "nodeagent.helper_main", choice.name, choice.socket]
        _, helper = await asyncio.get_running_loop().subprocess_exec(
            cls, *command, stdin=PIPE, stdout=PIPE, stderr=None, pass_fds=tuple(lock_fds), start_new_session=True
        )
        return helper

    @property
    def pid(self) -> int:
        return self._process.get_pid() or 0

    @property
    def alive(self) -> bool:
        return not self._silent

    async def call(
        self, name: str, pid: int, *, within: float, progress: Progress | None = None, **arguments: Any
    ) -> Any:
        """Make one driver call. Raises `DriverError`, of which `HelperTimedOut` and `HelperDied` end the helper."""
        if self._silent:
            raise HelperDied(name, pid, "its helper ended")
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (answer, progress)
        try:
            async with asyncio.timeout(within):
                request = {"id": number, "call": name, "pid": pid, **arguments}
                # Who is gone does not read it, which its silence will tell.
                self._calls.write((json.dumps(request) + "\n").encode())
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
        await self._gone.wait()

    async def kill(self) -> None:
        if self._process.get_returncode() is None:
            self._process.kill()
        await self._gone.wait()

    # ------------------------------------------------------------------------------------ told by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._process = transport
        calls = transport.get_pipe_transport(_STDIN)
        assert isinstance(calls, asyncio.WriteTransport)
        self._calls = calls

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        answer, progress = self._waiting.get(message["id"], (None, None))
        if answer is None or answer.done():
            return
        if "progress" in message:
            if progress is not None:
                progress(*message["progress"])
        elif "error" in message:
            call, pid, why, final, no_context = message["error"]
            kind = NoContext if no_context else DriverError
            answer.set_exception(kind(call, pid, why, final=final))
        else:
            answer.set_result(message["ok"])

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd != _STDOUT:
            return
        # A line without its end is what a helper was saying when it died.
        self._silent = True
        for answer, _ in self._waiting.values():
            if not answer.done():
                answer.set_exception(HelperDied("", 0, "its helper ended"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone.set()


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
