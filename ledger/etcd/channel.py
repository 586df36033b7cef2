# SPDX-License-Identifier: Apache-2.0
"""Connections to etcd's members: one channel for each endpoint, one of them in use, the next one after a
failure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, cast

import grpc
import grpc.aio

from ledger.etcd.methods import Method, Q, R
from ledger.etcd.security import Security

_OPTIONS: tuple[tuple[str, int], ...] = (
    # Both are needed to notice a silent peer: `keepalive_timeout_ms` alone leaves a dead connection open for
    # 66 to 70 s, with the ping timeout it is closed after 3 to 9 s. etcd refuses pings more often than every
    # 5 s, and any without a stream.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # The time allowed to connect. Shorter than an attempt, so that a member which is not there fails the attempt with
    # a proof that nothing was sent.
    ("grpc.min_reconnect_backoff_ms", 900),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # gRPC must send nothing again by itself: only the caller knows what may be sent twice.
    ("grpc.enable_retries", 0),
    # Two clients of one process must not share a connection, nor its fate.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 64 << 20),
)


def target_of(address: str, security: Security) -> tuple[str, bool]:
    """What to connect to for the endpoint `address`, and whether by TLS. Raises ValueError if it is none."""
    scheme, _, rest = address.rpartition("://")
    if scheme not in ("", "http", "https") or not rest.rpartition(":")[2].rstrip("/").isdecimal():
        raise ValueError(f"{address!r} is no endpoint; write host:port, http://host:port or https://host:port")
    if scheme == "http" and security.has_tls_files:
        raise ValueError(f"{address!r} is without TLS, but TLS files were given")
    return rest.rstrip("/"), scheme == "https" or security.has_tls_files


class Endpoint:
    """One member's client address, `[http[s]://]host:port`, and the channel to it."""

    def __init__(self, address: str, security: Security) -> None:
        self.address = address
        target, by_tls = target_of(address, security)
        if by_tls:
            credentials = security.channel_credentials()
            self._channel = grpc.aio.secure_channel(target, credentials, list(_OPTIONS))
        else:
            self._channel = grpc.aio.insecure_channel(target, list(_OPTIONS))
        # Making a callable costs as much as a call; they are kept by method.
        self._callables: dict[Method[Any, Any], object] = {}

    def unary(self, method: Method[Q, R]) -> grpc.aio.UnaryUnaryMultiCallable[Q, R]:
        made = self._callables.get(method)
        if made is None:
            made = self._channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
            self._callables[method] = made
        return cast("grpc.aio.UnaryUnaryMultiCallable[Q, R]", made)

    def stream(self, method: Method[Q, R]) -> grpc.aio.StreamStreamMultiCallable[Q, R]:
        made = self._callables.get(method)
        if made is None:
            made = self._channel.stream_stream(
                method.path, method.request.SerializeToString, method.response.FromString
            )
            self._callables[method] = made
        return cast("grpc.aio.StreamStreamMultiCallable[Q, R]", made)

    async def close(self) -> None:
        await self._channel.close()


class Endpoints:
    """The members in an order of this client's own, so that many clients spread over them. One is in use.

    Raises:
        ValueError: no endpoint, or one that is none.
        OSError: a TLS file cannot be read.
    """

    def __init__(self, addresses: Sequence[str], security: Security, random: Random) -> None:
        if isinstance(addresses, str) or not addresses:
            raise ValueError("etcd's endpoints are a list of at least one address")
        self._all = [Endpoint(address, security) for address in dict.fromkeys(addresses)]
        random.shuffle(self._all)
        self._index = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def current(self) -> Endpoint:
        return self._all[self._index]

    def find(self, address: str) -> Endpoint:
        """The endpoint with this address, as it was given. Raises ValueError if none is."""
        for endpoint in self._all:
            if endpoint.address == address:
                return endpoint
        raise ValueError(f"{address!r} is none of this client's endpoints")

    def leave(self, failed: Endpoint) -> None:
        """Go on with the next one, unless somebody else has left `failed` already."""
        if self.current is failed:
            self._index = (self._index + 1) % len(self._all)

    async def close(self) -> None:
        await asyncio.gather(*(endpoint.close() for endpoint in self._all))


class Backoff:
    """Pauses between attempts: none until each endpoint had its turn, then 20 ms, doubling up to 0.5 s, with
    jitter."""

    def __init__(self, endpoints: int, random: Random) -> None:
        self._endpoints = endpoints
        self._random = random
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def next_pause(self) -> float:
        """Count a failure; the seconds to wait before the next attempt."""
        self._failures += 1
        rounds, within = divmod(self._failures, self._endpoints)
        if within:
            return 0.0
        return min(0.02 * 2.0 ** min(rounds - 1, 10), 0.5) * self._random.uniform(0.5, 1.0)
