# SPDX-License-Identifier: Apache-2.0
"""Telling a forked child from the process that a client was opened in. A child has no session."""

from __future__ import annotations

import os
from collections.abc import Callable

from tsclient.errors import ForkedClient

_FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"

_generation = 0  # how many forks lie between this process and the one that imported this
_grpc_started_in: int | None = None  # the first generation that connected


def _after_fork() -> None:
    global _generation  # noqa: PLW0603 - a fork is an event of the process, not of any object
    _generation += 1


os.register_at_fork(after_in_child=_after_fork)


def in_child(act: Callable[[], None]) -> None:
    """Have it called in each forked child, before anything else runs there."""
    os.register_at_fork(after_in_child=act)


def generation() -> int:
    """Differs in a forked child from what it was in its parent."""
    return _generation


def check(born: int) -> None:
    """
    Raises:
        ForkedClient: what was born in generation `born` belongs to a parent of this process.
    """
    if born != _generation:
        raise ForkedClient("This process was forked from the one that has the client.")


def start_grpc() -> None:
    """Load and start gRPC, in such a way that this process may go on forking.

    gRPC's own support for forks is switched off (unless the environment says otherwise, or the program has
    used gRPC before): while any thread is in gRPC, as a client's is, its handlers make every so many forked
    children crash, of whatever the program forks for, a data loader's workers for example. Without them a
    child lives, as long as it leaves gRPC alone; `check` sees to that for this library.

    Raises:
        ForkedClient: a parent of this process has started it; here it would hang.
    """
    global _grpc_started_in  # noqa: PLW0603 - gRPC's state is the process's
    if _grpc_started_in is None:
        _grpc_started_in = _generation
        said = _FORK_SUPPORT in os.environ
        os.environ.setdefault(_FORK_SUPPORT, "0")
        try:
            import grpc

            # It is read once, when the first channel is made. This one connects to nobody.
            grpc.insecure_channel("127.0.0.1:1").close()
        finally:
            if not said:
                del os.environ[_FORK_SUPPORT]  # this program's children by exec are none of our business
    check(_grpc_started_in)
