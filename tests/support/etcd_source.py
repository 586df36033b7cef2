# SPDX-License-Identifier: Apache-2.0
"""Which etcd the tests run against, chosen once for each session and printed in pytest's header.

`TIMESLICE_TEST_ETCD=host:port` names a running one; `TIMESLICE_TEST_ETCD=container` asks for a container.
Else the binary that `ledger.etcd_server` finds; else, where only a Docker engine answers, a container. Else
the tests that need etcd fail: they are never skipped.
"""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ledger.embedded import EtcdCluster
from ledger.etcd_server import EtcdServerError, find_etcd
from tests.support.etcd_container import engine_answers, etcd_container

VARIABLE = "TIMESLICE_TEST_ETCD"
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class TestEtcd:
    """An etcd that answers, and where it came from."""

    __test__ = False

    endpoints: tuple[str, ...]
    origin: str

    @property
    def endpoint(self) -> str:
        """`host:port` of the first member."""
        return self.endpoints[0]


@dataclass(frozen=True, slots=True)
class Address:
    """A running etcd that the environment names."""

    endpoint: str

    def __str__(self) -> str:
        return f"{self.endpoint} (named by {VARIABLE})"


@dataclass(frozen=True, slots=True)
class Container:
    """A container of its own, on the Docker engine that answers."""

    why: str

    def __str__(self) -> str:
        return f"a container ({self.why})"


@dataclass(frozen=True, slots=True)
class Binary:
    """A server process of its own."""

    path: str
    version: str

    def __str__(self) -> str:
        return f"{self.path}, version {self.version}"


@dataclass(frozen=True, slots=True)
class Nothing:
    """No way to an etcd; `reason` says why and what to do."""

    reason: str

    def __str__(self) -> str:
        return f"NONE: {self.reason}"


Source = Address | Container | Binary | Nothing


def choose(environ: Mapping[str, str] = os.environ) -> Source:
    """The source for this session, in the order that this module's text gives."""
    match environ.get(VARIABLE, ""):
        case "container":
            return Container(f"asked for by {VARIABLE}")
        case "":
            pass
        case endpoint:
            return Address(endpoint)
    try:
        binary = find_etcd(environ)
    except EtcdServerError as error:
        if engine_answers():
            return Container("no binary here, and a Docker engine answers")
        return Nothing(str(error))
    return Binary(str(binary.path), str(binary.version))


def _require_listening(endpoint: str) -> None:
    host, _, port = endpoint.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS):
        pass


@contextlib.contextmanager
def running(source: Source) -> Iterator[TestEtcd]:
    """An etcd from this source, ended afterwards if it was started here. AssertionError for Nothing."""
    match source:
        case Address(endpoint):
            _require_listening(endpoint)
            yield TestEtcd((endpoint,), str(source))
        case Container():
            with etcd_container() as endpoint:
                yield TestEtcd((endpoint,), str(source))
        case Binary():
            with EtcdCluster(1) as cluster:
                yield TestEtcd(cluster.endpoints, str(source))
        case Nothing(reason):
            raise AssertionError(f"these tests need etcd: {reason}")


def fresh_prefix() -> bytes:
    """A key prefix that no other test has used."""
    return f"/test/{uuid.uuid4().hex}/".encode()
