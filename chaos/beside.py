# SPDX-License-Identifier: Apache-2.0
"""Something that goes on in a thread of its own beside a block."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Beside(ABC):
    """``with Beside(...)``: `_run` goes on until the block ends; leaving it waits so many ``seconds`` for its end.

    A subclass looks at ``_ended`` between two things that it does.
    """

    def __init__(self, name: str, seconds: float) -> None:
        self._ended = threading.Event()
        self._seconds = seconds
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(self._seconds)

    @abstractmethod
    def _run(self) -> None:
        """Go on until ``_ended`` is set."""
