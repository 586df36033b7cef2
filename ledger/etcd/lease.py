# SPDX-License-Identifier: Apache-2.0
"""A lease that this process keeps alive for itself, and knows by its own clock when it can no longer be sure
of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from ledger.etcd.clock import Clock
from ledger.etcd.errors import Closed, EtcdError, LeaseNotFound
from ledger.etcd.keepalive import Keepalives
from ledger.etcd.records import LeaseProof
from ledger.failpoint import hit

log = logging.getLogger(__name__)

_LOOK_AGAIN = 1.0
"""Seconds. The event loop's clock stands still while the machine is suspended, the lease does not: `lost`
fires at most this long after waking up. `alive` needs no event and is exact at once."""


class OwnedLease:
    """Renews one lease at a third of its time to live. Made by `EtcdClient.lease`; async context manager.

    Attributes:
        lease_id: to be put keys under.
        lost: set when the lease has ended or can no longer be proven, without any help from etcd. Final.
    """

    def __init__(
        self,
        proof: LeaseProof,
        keepalives: Keepalives,
        revoke: Callable[[int], Awaitable[bool]],
        clock: Clock,
        on_close: Callable[[OwnedLease], None],
    ) -> None:
        self.lease_id = proof.lease_id
        self.lost = asyncio.Event()
        self._proof = proof
        self._keepalives = keepalives
        self._revoke = revoke
        self._clock = clock
        self._on_close = on_close
        self._tasks = (
            asyncio.create_task(self._renew(), name="etcd lease renewal"),
            asyncio.create_task(self._guard(), name="etcd lease guard"),
        )

    @property
    def ttl(self) -> int:
        """Seconds, as etcd granted them."""
        return self._proof.ttl

    @property
    def deadline(self) -> float:
        """By the client's clock (boot time): until then the lease cannot have ended by itself."""
        return self._proof.deadline

    @property
    def alive(self) -> bool:
        """Proven, now. Once False it stays False."""
        if self._clock() >= self.deadline:
            self.lost.set()
        return not self.lost.is_set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, *, revoke: bool = True) -> None:
        """Stop renewing, and unless told otherwise end the lease and with it the keys under it."""
        self._on_close(self)
        self.lost.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not revoke:
            return
        try:
            await self._revoke(self.lease_id)
        except EtcdError as error:
            log.warning("Lease %x could not be revoked and ends within %d s: %s", self.lease_id, self.ttl, error)

    async def _renew(self) -> None:
        while self.alive:
            await asyncio.sleep(self.ttl / 3)
            try:
                proof = await self._keepalives.beat(self.lease_id, timeout=max(self.deadline - self._clock(), 0.0))
            except (LeaseNotFound, Closed) as error:
                log.warning("Lease %x is lost: %s", self.lease_id, error)
                self.lost.set()
            except EtcdError as error:
                log.warning("Lease %x was not renewed and will be lost at its deadline: %s", self.lease_id, error)
            else:
                hit("ledger.lease.renewed")
                # An answer after the deadline revives nothing: somebody may have acted on the loss.
                if self.alive:
                    self._proof = proof

    async def _guard(self) -> None:
        while self.alive:
            left = self.deadline - self._clock()
            try:
                async with asyncio.timeout(max(0.0, min(left, _LOOK_AGAIN))):
                    await self.lost.wait()
            except TimeoutError:
                continue
