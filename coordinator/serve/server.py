# SPDX-License-Identifier: Apache-2.0
"""One replica as a whole: the engine, the service, its health, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from coordinator.apply.engine import Engine
from coordinator.serve.compaction import KEEP_LEAST, Compactor
from coordinator.serve.interceptor import CallInterceptor
from coordinator.serve.registration import Registration
from coordinator.serve.registry import Registry
from coordinator.serve.security import ServerTls, Tokens
from coordinator.serve.service import CoordinatorService
from coordinator.serve.services import Services
from ledger.codec import VERSION
from ledger.etcd import EtcdClient, Security
from ledger.keys import DEFAULT_PREFIX, Keys
from ledger.records import Replica
from ledger.release import release
from timeslice_proto.v1 import coordinator_pb2, coordinator_pb2_grpc

log = logging.getLogger(__name__)

SERVICE = coordinator_pb2.DESCRIPTOR.services_by_name["Coordinator"].full_name

MESSAGE_MAX = 1024 * 1024
"""Bytes of a request. gRPC refuses a larger one itself (RESOURCE_EXHAUSTED), before it is read into memory."""

_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_MAX),
    ("grpc.max_send_message_length", 64 * MESSAGE_MAX),
    ("grpc.so_reuseport", 0),  # a second replica on the same port is a mistake, not a way to share it
    # A client that went without a word is noticed after 15 s at most. `ping_timeout` is what newer versions of gRPC
    # wait for the answer; `keepalive_timeout` alone would leave a half-open connection for a minute.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Clients ping often: their proof of the lease hangs on noticing a dead replica early.
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
)
_HEALTH_EVERY = 0.5
_STOP_GRACE = 2.0


def new_replica_id() -> str:
    return f"r-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Settings:
    """How a replica runs.

    Attributes:
        etcd: `[http[s]://]host:port` of etcd's members.
        listen: `host:port`; port 0 takes a free one.
        advertise: the address that clients can reach it by; empty: as it listens.
        token_file: every caller has to send one of the tokens in it; None: anybody may call.
        drain_within: seconds for writes in flight at the end.
        history: seconds of etcd's history that are kept; None: nothing is compacted.
    """

    etcd: Sequence[str]
    listen: str
    advertise: str = ""
    prefix: str = DEFAULT_PREFIX
    security: Security = field(default_factory=Security)
    tls: ServerTls | None = None
    token_file: Path | None = None
    replica_id: str = field(default_factory=new_replica_id)
    drain_within: float = 10.0
    history: float | None = KEEP_LEAST


class PortInUse(Exception):
    """The address cannot be listened on."""


class CoordinatorServer:
    """One replica. `async with CoordinatorServer(settings) as replica` serves until the context ends.

    Attributes:
        address: `host:port` that it listens on.
        engine: its engine.
        registry: what it serves.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._health = health.aio.HealthServicer()
        self._healthy: bool | None = None
        self._running = contextlib.AsyncExitStack()
        self.address = ""
        self.engine: Engine
        self.registry: Registry

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Follow the ledger, then serve.

        Raises:
            EngineUnavailable: etcd does not answer.
            PortInUse: the address is taken.
            ReplicaIdTaken: another replica has its name and lives.
            OSError: a TLS file or the file of tokens cannot be read.
            ValueError: no token is in that file.
        """
        settings, running = self._settings, self._running
        try:
            client = EtcdClient(settings.etcd, security=settings.security)
            running.push_async_callback(client.close)
            keys = Keys(settings.prefix)
            self.engine = Engine(client, keys, settings.replica_id)
            await self.engine.start()
            running.push_async_callback(self.engine.close)
            services = Services.of(self.engine)
            running.callback(services.bell.close)
            self.registry = services.registry
            server = self._listen(services)
            address = settings.advertise or self.address
            replica = Replica(address=address, release=release(), record_version=VERSION)
            registration = Registration(client, keys, settings.replica_id, replica, self._is_unregistered)
            await registration.start()
            running.push_async_callback(registration.close)
            services.expiry.start()
            running.push_async_callback(services.expiry.close)
            if settings.history is not None:
                compactor = Compactor(self.engine, settings.history)
                compactor.start()
                running.push_async_callback(compactor.close)
            await server.start()
            running.push_async_callback(self._leave, server, services)
            health_task = asyncio.create_task(self._watch_health(), name="health")
            running.push_async_callback(_cancelled, health_task)
        except BaseException:
            await running.aclose()
            raise
        log.info("Replica %s serves on %s.", settings.replica_id, self.address)

    async def stop(self) -> None:
        """Send clients to another replica, finish what is being written, deregister, and end."""
        await self._running.aclose()

    def _listen(self, services: Services) -> grpc.aio.Server:
        settings = self._settings
        tokens = Tokens(settings.token_file) if settings.token_file is not None else None
        server = grpc.aio.server(options=_OPTIONS, interceptors=(CallInterceptor(tokens),))
        coordinator_pb2_grpc.add_CoordinatorServicer_to_server(CoordinatorService(services), server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
        try:
            if settings.tls is None:
                port = server.add_insecure_port(settings.listen)
            else:
                port = server.add_secure_port(settings.listen, settings.tls.credentials())
        except RuntimeError as error:
            raise PortInUse(f"{settings.listen} cannot be listened on: choose another --listen.") from error
        self.address = f"{settings.listen.rpartition(':')[0]}:{port}"
        return server

    def _is_unregistered(self) -> bool:
        return self.engine.picture.live and self._settings.replica_id not in self.engine.picture.replicas()

    async def _leave(self, server: grpc.aio.Server, services: Services) -> None:
        log.info("Replica %s leaves: its clients go on at another one.", self._settings.replica_id)
        await self._health.enter_graceful_shutdown()
        await services.registry.drain(self._settings.drain_within)
        await server.stop(_STOP_GRACE)
        await services.registry.drain(self._settings.drain_within)

    async def _watch_health(self) -> None:
        while True:
            live = self.engine.picture.live
            if live != self._healthy:
                self._healthy = live
                serving = health_pb2.HealthCheckResponse.SERVING
                status = serving if live else health_pb2.HealthCheckResponse.NOT_SERVING
                for name in ("", SERVICE):
                    await self._health.set(name, status)
            await asyncio.sleep(_HEALTH_EVERY)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
