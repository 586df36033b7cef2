# SPDX-License-Identifier: Apache-2.0
"""File descriptors that are not those of the standard streams."""

from __future__ import annotations

import fcntl
import os

_STANDARD = 3  # 0, 1 and 2


def above_standard(descriptor: int) -> int:
    """The same file under a number above 2, not inherited unless passed on; ``descriptor`` itself where it is that.

    In a program that was started with a standard stream closed, the next file that is opened has its number. A child
    would find its own standard stream there, and whatever prints without Python would write into the file.
    """
    if descriptor >= _STANDARD:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _STANDARD)
    finally:
        os.close(descriptor)
