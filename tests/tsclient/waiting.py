# SPDX-License-Identifier: Apache-2.0
"""Waiting for what another thread brings about."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    """Return once it holds; fails if it does not within the time."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)
