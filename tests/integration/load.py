# SPDX-License-Identifier: Apache-2.0
"""Clients that take turns all the time: whoever harms the system beside them can ask whether they noticed."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import tsclient as ts

_WITHIN = 60.0


class Load:
    """``with Load(endpoints, group, jobs) as load``: each job acquires and yields, again and again."""

    def __init__(self, endpoints: tuple[str, ...], group: str, jobs: tuple[str, ...]) -> None:
        self._endpoints, self._group, self._jobs = endpoints, group, jobs
        self._changed = threading.Condition()
        self._turns: Counter[str] = Counter()
        self._tokens: list[int] = []
        self._errors: list[Exception] = []
        self._ending = False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for job in self._jobs:
            client = self._stack.enter_context(ts.connect(self._endpoints, job=job))
            thread = threading.Thread(target=self._take_turns, args=(client, job), name=f"load of {job}")
            thread.start()
            self._stack.callback(thread.join, _WITHIN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = True
        self._stack.close()

    def goes_on(self) -> None:
        """Each job has a turn that began after this call, no token came twice, and nobody saw an error."""
        with self._changed:
            wanted = {job: self._turns[job] + 2 for job in self._jobs}  # one may be under way

            def done() -> bool:
                return bool(self._errors) or all(self._turns[job] >= turns for job, turns in wanted.items())

            assert self._changed.wait_for(done, _WITHIN), f"turns: {self._turns}, wanted: {wanted}"
            assert self._errors == []
            assert self._tokens == sorted(set(self._tokens))

    def _take_turns(self, client: ts.Client, job: str) -> None:
        try:
            while not self._ending:
                with client.accelerators(self._group, timeout=_WITHIN) as turn, self._changed:
                    self._tokens.append(turn.token)
                with self._changed:
                    self._turns[job] += 1
                    self._changed.notify_all()
        except Exception as error:  # noqa: BLE001 - told to whoever asks
            with self._changed:
                self._errors.append(error)
                self._changed.notify_all()
