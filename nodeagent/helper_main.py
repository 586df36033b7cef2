# SPDX-License-Identifier: Apache-2.0
"""A helper: the process that makes driver calls for the agent, `python -m nodeagent.helper_main DRIVER [SOCKET]`.

It reads one call a line from its standard input, makes it, and answers on its standard output. When the
agent's end closes it ends the call in flight, unlocks what it locked and has not begun to save, and exits: until
then it holds the devices' OS locks that it inherited, so that no new agent acts beside it.
"""

from __future__ import annotations

import json
import signal
import sys
from functools import cached_property
from typing import Any, TextIO

from ledger import failpoint
from nodeagent.backends.driver import Driver, DriverError, NoContext
from nodeagent.backends.drivers import DriverChoice


class Helper:
    """Serves one agent over one pair of pipes."""

    def __init__(self, choice: DriverChoice, answers: TextIO) -> None:
        self._choice, self._answers = choice, answers
        self._locked: set[int] = set()

    @cached_property
    def _driver(self) -> Driver:
        """Opened by the first call, so that what keeps it from opening is that call's answer."""
        try:
            return self._choice.open()
        except (ImportError, ValueError) as error:
            raise DriverError("open", 0, f"the driver cannot be used here: {error}") from error

    def serve(self, calls: TextIO) -> None:
        """Make each call in turn, until the agent is gone."""
        for line in calls:
            call = json.loads(line)
            try:
                made = self._make(call)
                if failpoint.armed():
                    failpoint.hit(f"agent_helper.{call['call']}.made")
                self._answer(call["id"], ok=made)
            except DriverError as error:
                self._answer(
                    call["id"], error=[error.call, error.pid, error.why, error.final, isinstance(error, NoContext)]
                )
        self._release()

    def _make(self, call: dict[str, Any]) -> Any:
        if failpoint.armed():
            failpoint.hit(f"agent_helper.{call['call']}.asked")
        if call["call"] == "unready":
            return self._choice.unready()  # which is asked where the driver may not even open
        driver, pid = self._driver, call["pid"]

        def progress(done: int, total: int) -> None:
            self._answer(call["id"], progress=[done, total])

        match call["call"]:
            case "devices":
                return [[one.uuid, one.memory_bytes] for one in driver.devices()]
            case "look":
                seen = driver.look(call["devices"], call["of"], call["pids"])
                accounts = [[one.uuid, one.used_bytes, one.total_bytes, list(one.pids)] for one in seen.use.values()]
                return [accounts, [(pid, state and state.name) for pid, state in seen.states.items()]]
            case "check":
                verdict = driver.check(pid)
                return [verdict.refused, verdict.bytes]
            case "lock":
                driver.lock(pid, call["timeout_ms"])
                self._locked.add(pid)
            case "checkpoint":
                # From here on the process is not to be unlocked behind the agent's back: its COMMIT has begun.
                self._locked.discard(pid)
                driver.checkpoint(pid, progress)
            case "restore":
                driver.restore(pid, progress)
            case "unlock":
                driver.unlock(pid)
                self._locked.discard(pid)
            case unknown:
                raise DriverError(str(unknown), pid, "no such call")
        return None

    def _answer(self, number: int, **content: Any) -> None:
        try:
            self._answers.write(json.dumps({"id": number, **content}) + "\n")
            self._answers.flush()
        except BrokenPipeError:
            pass  # the agent is gone: the end of the calls will say so, when this one is done

    def _release(self) -> None:
        for pid in sorted(self._locked):
            try:
                self._driver.unlock(pid)
            except DriverError as error:
                print(f"The agent is gone, and {error}.", file=sys.stderr)


def main(arguments: list[str]) -> None:
    """Serve on the standard streams."""
    # A terminal's or a service manager's signal to the whole group is the agent's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Helper(DriverChoice(*arguments), sys.stdout).serve(sys.stdin)


if __name__ == "__main__":
    main(sys.argv[1:])
