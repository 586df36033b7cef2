# SPDX-License-Identifier: Apache-2.0
"""Which release of the system this is, for people who look at registrations."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def release() -> str:
    """The installed version, or `source` where the tree itself is run."""
    try:
        return version("timeslice-system")
    except PackageNotFoundError:
        return "source"
