# SPDX-License-Identifier: Apache-2.0
"""Waiting for processes that are not this one's children."""

from __future__ import annotations

import os
import select


def wait_gone(pid: int, seconds: float = 30.0) -> bool:
    """True as soon as process `pid` is gone, False if it is still there after `seconds`. No polling."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        readable, _, _ = select.select([handle], [], [], seconds)
        return bool(readable)
    finally:
        os.close(handle)
