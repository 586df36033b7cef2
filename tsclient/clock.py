# SPDX-License-Identifier: Apache-2.0
"""The clock that leases are measured by on this side."""

from __future__ import annotations

import time


def boottime() -> float:
    """Seconds since boot, time asleep included: a machine that was suspended must not believe in its lease.

    CLOCK_BOOTTIME of clock_gettime(2). Linux alone has it; elsewhere `AttributeError`.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)
