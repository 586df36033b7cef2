# SPDX-License-Identifier: Apache-2.0
"""A coordinator for the tests of programs that use this library: all of it real but the devices.

    from tsclient import testing

    def test_my_loop_survives_a_lost_turn():
        with testing.coordinator() as system, system.connect(job="mine") as client:
            turn = client.acquire(system.group)
            system.expire_session("mine")
            ...

It needs `pip install timeslice-system` and an etcd server (on PATH, or named in TIMESLICE_ETCD), and takes some
seconds to start. `tsclient.testing.fixtures` has it as a fixture of pytest.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from types import TracebackType
from typing import Protocol

import tsclient

ENTRY_POINTS = "timeslice.testing"


class SystemNotInstalled(ImportError):
    """The client alone is installed, which has no coordinator."""


class _System(Protocol):
    """What the system's entry point makes."""

    group: str

    @property
    def endpoints(self) -> tuple[str, ...]: ...
    def __enter__(self) -> object: ...
    def __exit__(self, *_: object) -> None: ...
    def expire_session(self, job: str | None) -> int: ...
    def freeze(self) -> AbstractContextManager[None]: ...
    def lose_connection(self) -> AbstractContextManager[None]: ...


class Coordinator:
    """Made by `coordinator`; a context manager. Its processes end with this one, however that ends."""

    def __init__(self, system: _System) -> None:
        self._system = system

    def __enter__(self) -> Coordinator:  # noqa: PYI034 - 3.10 has no Self
        self._system.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._system.__exit__(kind, error, trace)

    @property
    def group(self) -> str:
        """Its one group of accelerators."""
        return self._system.group

    @property
    def endpoints(self) -> tuple[str, ...]:
        """ "host:port" of each coordinator."""
        return self._system.endpoints

    def connect(self, job: str = "test", ttl: float = 10.0) -> tsclient.Client:
        """A client of it; to be closed before this is."""
        return tsclient.connect(self.endpoints, job, ttl)

    def environment(self, job: str = "test") -> dict[str, str]:
        """The variables by which another program, or the module-level functions, find it."""
        return {
            "TIMESLICE_ENDPOINTS": ",".join(self.endpoints),
            "TIMESLICE_GROUP": self.group,
            "TIMESLICE_JOB_ID": job,
        }

    def expire_session(self, job: str | None = None) -> None:
        """End a session, as if its heartbeats had failed: who holds has lost, who waits goes to the tail.

        Args:
            job: whose; it has to hold or wait. None: everybody's.

        Raises:
            LookupError: there is no such session.
        """
        if not self._system.expire_session(job):
            raise LookupError("There is no session." if job is None else f"Job {job} neither holds nor waits.")

    def freeze(self) -> AbstractContextManager[None]:
        """In the block the coordinators neither answer nor hang up: no heartbeat is confirmed."""
        return self._system.freeze()

    def lose_connection(self) -> AbstractContextManager[None]:
        """In the block each connection is broken and none can be made. Sessions live on, as long as their TTL."""
        return self._system.lose_connection()


def coordinator(group: str = "test", *, replicas: int = 1, devices: int = 1) -> Coordinator:
    """A coordinator with a group of simulated devices, to be entered.

    Args:
        group: its name.
        replicas: coordinators; any of them serves.
        devices: in the group.

    Raises:
        SystemNotInstalled: here. On entering, whatever keeps a process from starting, with the end of its log.
    """
    found = next(iter(entry_points(group=ENTRY_POINTS, name="system")), None)
    if found is None:
        raise SystemNotInstalled(
            "tsclient.testing runs a real coordinator, and only the client is installed: pip install timeslice-system"
        )
    return Coordinator(found.load()(group=group, replicas=replicas, devices=devices))
