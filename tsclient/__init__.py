# SPDX-License-Identifier: Apache-2.0
"""The client library: jobs take turns on shared accelerators. It knows gRPC and nothing of etcd.

    import tsclient as ts

    with ts.accelerators("trainers", timeout=600) as turn:
        for batch in batches:
            turn.check()          # LockLost once the turn is over
            step(batch)

The module-level functions use one client for the process, opened from the environment (see
`tsclient.settings`) at its first use; `connect` opens others. docs/client.md has it all on one page.
"""

from __future__ import annotations

from tsclient.client import Accelerators, Client, IfHeld, connect, default
from tsclient.errors import (
    AcquireTimeout,
    AlreadyQueued,
    BadRequest,
    ClientClosed,
    Evicted,
    ForkedClient,
    GroupDeleting,
    JobQuarantined,
    LockLost,
    NoSuchGroup,
    NotHolder,
    StaleToken,
    TimesliceError,
    TurnLost,
    Unavailable,
)
from tsclient.progress import OnProgress, Progress, Queued, Switching
from tsclient.settings import Tls
from tsclient.turn import Turn

__all__ = [
    "Accelerators",
    "AcquireTimeout",
    "AlreadyQueued",
    "BadRequest",
    "Client",
    "ClientClosed",
    "Evicted",
    "ForkedClient",
    "GroupDeleting",
    "JobQuarantined",
    "LockLost",
    "NoSuchGroup",
    "NotHolder",
    "OnProgress",
    "Progress",
    "Queued",
    "StaleToken",
    "Switching",
    "TimesliceError",
    "Tls",
    "Turn",
    "TurnLost",
    "Unavailable",
    "accelerators",
    "acquire",
    "close",
    "connect",
]


def acquire(
    group: str,
    *,
    timeout: float | None = None,
    priority: int = 0,
    job: str | None = None,
    if_held: IfHeld = "refuse",
    on_progress: OnProgress | None = None,
) -> Turn:
    """As `Client.acquire`, by the process's own client."""
    return default.get().acquire(
        group, timeout=timeout, priority=priority, job=job, if_held=if_held, on_progress=on_progress
    )


def accelerators(
    group: str,
    *,
    timeout: float | None = None,
    priority: int = 0,
    job: str | None = None,
    if_held: IfHeld = "refuse",
    on_progress: OnProgress | None = None,
) -> Accelerators:
    """As `Client.accelerators`, by the process's own client, which is opened when the block is entered."""
    return Accelerators(
        lambda: acquire(group, timeout=timeout, priority=priority, job=job, if_held=if_held, on_progress=on_progress)
    )


def close() -> bool:
    """Close the process's own client, if it is open; as `Client.close`."""
    return default.close()
