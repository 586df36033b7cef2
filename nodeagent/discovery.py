# SPDX-License-Identifier: Apache-2.0
"""Which job a process on a device belongs to.

In this order: what was registered or recorded for that very process; ``TIMESLICE_JOB_ID`` in the environment that
it was started with, unless ``TIMESLICE_GROUP`` there names another group; the job of a known process in the same
Kubernetes pod. A process that none of these tells is a stranger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ledger.errors import BadName
from ledger.keys import check_name
from ledger.records import Process
from nodeagent import procfs
from nodeagent.backends.base import Known

JOB, GROUP = "TIMESLICE_JOB_ID", "TIMESLICE_GROUP"


@dataclass(frozen=True, slots=True)
class Machine:
    """Where facts about a pid come from: /proc, unless a test says otherwise."""

    environ: Callable[[int], Mapping[str, str] | None] = procfs.environ
    pod_uid: Callable[[int], str | None] = procfs.pod_uid


def owner(process: Process, group: str, known: Known, machine: Machine) -> str | None:
    """The job of the group that ``process`` belongs to, or None. Raises PermissionError where /proc may not be read."""
    for job, processes in known.items():
        if process in processes:
            return job
    environ = machine.environ(process.pid) or {}
    if environ.get(GROUP, group) != group:
        return None
    if JOB in environ:
        return _name(environ[JOB])
    pod = machine.pod_uid(process.pid)
    if pod is None:
        return None
    mates = (job for job, all_ in known.items() if any(machine.pod_uid(one.pid) == pod for one in all_))
    return next(mates, None)


def _name(job: str) -> str | None:
    try:
        return check_name("job", job)
    except BadName:
        return None
