# SPDX-License-Identifier: Apache-2.0
"""The agent's registration: a leased key, made only where there is none. Its create revision is the incarnation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ledger.codec import encode
from ledger.etcd import EtcdClient, OwnedLease
from ledger.etcd.errors import EtcdError
from ledger.etcd.txn import Get, Put, absent
from ledger.failpoint import hit
from ledger.records import Agent
from nodeagent.errors import AlreadyRegistered, JournalUnwritable
from nodeagent.journal import Journal

_log = logging.getLogger(__name__)
_PAUSE = 1.0


class Registration:
    """Keeps this agent registered, with a new incarnation whenever the old one has ended.

    Attributes:
        incarnation: the create revision of the agent's key; 0 while it is not registered.
        first: set once the agent has been registered for the first time.
    """

    def __init__(
        self,
        client: EtcdClient,
        key: bytes,
        node: str,
        journal: Journal,
        record: Callable[[], Agent],
        changed: Callable[[], None],
        *,
        ttl: int,
    ) -> None:
        self.incarnation = 0
        self.first = asyncio.Event()
        self._client, self._key, self._node, self._journal = client, key, node, journal
        self._record, self._changed, self._ttl = record, changed, ttl
        self._lease: OwnedLease | None = None
        self._restarted = False
        self._there = (0, 0)  # create revision of the key, as of this revision of the store
        self._told = asyncio.Event()

    async def revoke_old(self) -> None:
        """End what an earlier life of this agent has left, so that it does not stand in the way (rule 7)."""
        lease = self._journal.state.lease
        while lease:
            try:
                await self._client.revoke(lease)
                self._journal.set_lease(0)
                return
            except (EtcdError, JournalUnwritable) as error:
                _log.warning("The old registration of node %s cannot be ended yet: %s", self._node, error)
                await asyncio.sleep(_PAUSE)

    async def run(self) -> None:
        """Register, and again each time that the registration has ended, until cancelled."""
        complaint = ""
        while True:
            self._told.clear()
            self._restarted = False
            try:
                await self._register()
            except (EtcdError, AlreadyRegistered, JournalUnwritable) as error:
                if str(error) != complaint:  # it is tried anew at each change that the view tells of
                    _log.warning("Node %s is not registered: %s", self._node, error)
                complaint = str(error)
                await self._drop()
                # Woken when the key in the way has gone.
                await self._wait(_PAUSE)
                continue
            complaint = ""
            await self._ended()
            hit("agent.registration.ended")
            _log.warning("The registration of node %s has ended: registering anew.", self._node)
            await self._drop()

    def seen(self, create_revision: int, revision: int, *, restarted: bool = False) -> None:
        """Told by the view which registration was there at ``revision`` of the store; 0: none.

        ``restarted``: the store is another one, or was set back: what it says of this agent is of another time, so
        the agent registers anew, with the highest epochs that it has seen (rule 10).
        """
        news = restarted or create_revision != self._there[0]
        self._there = (create_revision, revision)
        self._restarted = self._restarted or restarted
        # Every change on the node comes by here; as a rule it says that all is as it was.
        if news or self._gone():
            self._told.set()

    async def close(self) -> None:
        """Deregister."""
        await self._drop()

    async def _register(self) -> None:
        lease = self._client.new_lease_id()
        # Before it exists: a crash in between must leave nothing that the next life does not know of.
        self._journal.set_lease(lease)
        hit("agent.lease.noted")
        self._lease = await self._client.lease(self._ttl, lease_id=lease)
        hit("agent.lease.granted")
        put = Put(self._key, encode(self._record()), lease=lease)
        result = await self._client.txn([absent(self._key)], [put], [Get(self._key)], idempotent=True)
        if result.succeeded:
            self.incarnation = result.revision
        else:
            found = getattr(result.responses[0], "kvs", ())
            if not found or found[0].lease != lease:
                raise AlreadyRegistered(self._node)
            self.incarnation = found[0].create_revision
        hit("agent.registered")
        _log.info("Node %s is registered; incarnation %d.", self._node, self.incarnation)
        self.first.set()
        self._changed()

    async def _ended(self) -> None:
        """Wait for the end of the lease, or for a view in which the key is not this registration's."""
        assert self._lease is not None
        lost = asyncio.create_task(self._lease.lost.wait())
        try:
            while not lost.done() and not self._gone():
                self._told.clear()
                told = asyncio.create_task(self._told.wait())
                try:
                    await asyncio.wait({lost, told}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    told.cancel()
        finally:
            lost.cancel()

    def _gone(self) -> bool:
        create, revision = self._there
        # What the view says of a time before this registration says nothing about it.
        return self._restarted or (revision >= self.incarnation and create != self.incarnation)

    async def _drop(self) -> None:
        self.incarnation = 0
        lease, self._lease = self._lease, None
        if lease is not None:
            await lease.close()
        self._changed()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._told.wait()
        except TimeoutError:
            return
