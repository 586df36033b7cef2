# SPDX-License-Identifier: Apache-2.0
"""Plain calls to whichever coordinator answers. Loads gRPC, so it is imported by a command when it runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

import grpc

from timeslice_proto.v1 import coordinator_pb2
from timeslice_proto.v1.coordinator_pb2_grpc import CoordinatorStub
from tsclient import settings
from tsclient.channel import from_status, open_blocking_channel
from tsclient.errors import BadRequest, TimesliceError, Unavailable

_R = TypeVar("_R")

_LONGEST = 1e6  # s; gRPC takes no infinity

Ask = Callable[[CoordinatorStub, float], _R]


def call(args: argparse.Namespace, ask: Ask[_R], *, repeatable: bool = True) -> _R:
    """Ask one coordinator after the other until one answers, within `args.timeout` seconds.

    Args:
        ask: makes the call; its second argument is the seconds that are left.
        repeatable: whether it may be made again though the first may have been carried out.

    Raises:
        TimesliceError: the answer, or `Unavailable` if there was none.
    """
    where = _settings(args)
    deadline = time.monotonic() + args.timeout
    trouble: TimesliceError = Unavailable("No coordinator was asked.")
    for endpoint in where.endpoints:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        with open_blocking_channel(endpoint, where) as channel:
            try:
                return ask(CoordinatorStub(channel), left)
            except grpc.RpcError as error:
                trouble = _error(error, endpoint)
        if not isinstance(trouble, Unavailable) or not repeatable:
            break
    raise trouble


def answers(
    args: argparse.Namespace,
) -> tuple[list[tuple[str, TimesliceError | None]], Sequence[coordinator_pb2.Group] | None]:
    """Ask every coordinator: what is wrong with each, and the groups as one of them sees them (None: as nobody does).

    Each is given a share of the `args.timeout` seconds, so that one that is silent hides no other.
    """
    where = _settings(args)
    told: list[tuple[str, TimesliceError | None]] = []
    groups: Sequence[coordinator_pb2.Group] | None = None
    for endpoint in where.endpoints:
        trouble: TimesliceError | None = None
        with open_blocking_channel(endpoint, where) as channel:
            try:
                listed = CoordinatorStub(channel).ListGroups(
                    coordinator_pb2.ListGroupsRequest(), timeout=args.timeout / len(where.endpoints)
                )
                groups = listed.groups if groups is None else groups
            except grpc.RpcError as error:
                trouble = _error(error, endpoint)
        told.append((endpoint, trouble))
    return told, groups


def stream(args: argparse.Namespace, ask: Callable[[CoordinatorStub], Iterator[_R]]) -> Iterator[_R]:
    """Follow a stream of the first coordinator that gives one, until it ends or the caller is interrupted."""
    where = _settings(args)
    trouble: TimesliceError = Unavailable("No coordinator was asked.")
    for endpoint in where.endpoints:
        with open_blocking_channel(endpoint, where) as channel:
            begun = False
            try:
                for item in ask(CoordinatorStub(channel)):
                    begun = True
                    yield item
            except grpc.RpcError as error:
                trouble = _error(error, endpoint)
            else:
                return
        if begun or not isinstance(trouble, Unavailable):
            break
    raise trouble


def _settings(args: argparse.Namespace) -> settings.Settings:
    if not 0 < args.timeout < _LONGEST:
        raise BadRequest(f"--timeout {args.timeout:g} is no time to wait.", next_step="Give seconds above 0.")
    return settings.load(endpoints=args.endpoints)


def _error(error: grpc.RpcError, endpoint: str) -> TimesliceError:
    failed = cast("grpc.Call", error)  # which gRPC promises in words, and not in types
    return from_status(failed.code(), failed.details(), failed.trailing_metadata(), endpoint)
