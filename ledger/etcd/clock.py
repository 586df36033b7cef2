# SPDX-License-Identifier: Apache-2.0
"""The clock by which leases are judged."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since an arbitrary start, never going back."""


def boottime() -> float:
    """Seconds since boot, suspended time included.

    `time.monotonic` stands still while the machine is suspended: a lease would look alive that etcd ended
    long ago.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)
