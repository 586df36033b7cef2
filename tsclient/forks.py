# SPDX-License-Identifier: Apache-2.0
"""Telling a forked child from the process that a client was opened in. A child has no session."""

from __future__ import annotations

import os
from collections.abc import Callable

from tsclient.errors import ForkedClient

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
    """To be called before gRPC is used.

    Raises:
        ForkedClient: a parent of this process has used it; here it would hang.
    """
    global _grpc_started_in  # noqa: PLW0603 - gRPC's state is the process's
    if _grpc_started_in is None:
        _grpc_started_in = _generation
    check(_grpc_started_in)


def is_origin() -> bool:
    """Whether it was this very process that has started gRPC."""
    return _grpc_started_in == _generation
