# SPDX-License-Identifier: Apache-2.0
"""How far a wait is, in one line that is written over; where nobody looks, in a line for each piece of news."""

from __future__ import annotations

import sys
from typing import TextIO

from tsclient.progress import Progress

WIDTH = 100  # columns; longer news are cut on a terminal


class ProgressLine:
    """To be passed as `on_progress`."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._open = False

    def __call__(self, progress: Progress) -> None:
        text = f"waiting for {progress}"
        if self._stream.isatty():
            self._stream.write(f"\r{text[:WIDTH]:<{WIDTH}}")
            self._open = True
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def done(self) -> None:
        """The wait is over: leave a clean line."""
        if self._open:
            self._stream.write(f"\r{'':<{WIDTH}}\r")
            self._stream.flush()
            self._open = False
