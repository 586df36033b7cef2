# SPDX-License-Identifier: Apache-2.0
"""The client library: jobs take turns on shared accelerators. It knows nothing of etcd.

    import tsclient as ts

    with ts.accelerators("trainers", timeout=600) as turn:
        for batch in batches:
            turn.check()          # LockLost once the turn is over
            step(batch)

The module-level functions use one client for the process, opened from the environment (see
`tsclient.settings`) at its first use; `connect` opens others. `tsclient.aio` is the same for asyncio,
`tsclient.distributed` for jobs of many ranks. docs/client.md has it all on one page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsclient.client import Accelerators, Client, connect, default
from tsclient.errors import (
    AcquireTimeout,
    AlreadyQueued,
    BadRequest,
    ClientClosed,
    Evicted,
    ForkedClient,
    GroupDeleting,
    HelperFailed,
    JobPinned,
    JobQuarantined,
    LockLost,
    NoSuchGroup,
    NotHolder,
    StaleToken,
    TimesliceError,
    TurnLost,
    Unavailable,
)
from tsclient.options import Options
from tsclient.progress import OnProgress, Progress, Queued, Switching
from tsclient.settings import Tls
from tsclient.turn import Turn

if TYPE_CHECKING:
    from typing_extensions import Unpack

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
    "HelperFailed",
    "JobPinned",
    "JobQuarantined",
    "LockLost",
    "NoSuchGroup",
    "NotHolder",
    "OnProgress",
    "Options",
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


def acquire(*groups: str, **options: Unpack[Options]) -> Turn:
    """As `Client.acquire`, by the process's own client."""
    return default.acquire(groups, options)


def accelerators(*groups: str, **options: Unpack[Options]) -> Accelerators:
    """As `Client.accelerators`, by the process's own client, which is opened when the block is entered."""
    return Accelerators(lambda: acquire(*groups, **options))


def close() -> bool:
    """Close the process's own client, if it is open; as `Client.close`."""
    return default.close()
