# SPDX-License-Identifier: Apache-2.0
"""What a caller asks for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Want:
    """A turn of one job in one or several groups, whatever session asks for it.

    Attributes:
        groups: several are had together or not at all.
        join: wait for another process's ticket of this job to go, rather than being refused.
        backend: by which the job is to be saved; empty: the node's default.
    """

    job: str
    groups: tuple[str, ...]
    priority: int = 0
    join: bool = False
    backend: str = ""

    def overlaps(self, other: Want) -> bool:
        """Whether both would be the same ticket in some group: a job has one ticket in each."""
        return self.job == other.job and not set(self.groups).isdisjoint(other.groups)
