# SPDX-License-Identifier: Apache-2.0
"""The registration and a journal that cannot be written for a while."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from pathlib import Path

import pytest

from ledger.etcd import EtcdClient
from ledger.keys import Keys
from ledger.records import Agent
from nodeagent.errors import JournalUnwritable
from nodeagent.journal import Journal
from nodeagent.registration import Registration
from tests.support.etcd_source import TestEtcd


class FullDisk(Journal):
    """Takes no lease for the first ``times``."""

    times = 2

    def set_lease(self, lease: int) -> None:
        if self.times:
            self.times -= 1
            raise JournalUnwritable("journal", OSError(errno.ENOSPC, "No space left on device"))
        super().set_lease(lease)


@pytest.mark.parametrize("old", [False, True])
async def test_an_agent_goes_on_when_its_disk_has_room_again(
    etcd: TestEtcd, prefix: bytes, tmp_path: Path, old: bool
) -> None:
    keys = Keys(prefix.decode())
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(EtcdClient(etcd.endpoints))
        journal = FullDisk(tmp_path / "journal")
        stack.callback(journal.close)
        if old:
            Journal.set_lease(journal, (await client.grant(60)).lease_id)
        registration = Registration(client, keys.agent("n"), "n", journal, Agent, lambda: None, ttl=10)
        async with asyncio.timeout(30):
            await registration.revoke_old()
            running = asyncio.create_task(registration.run())
            first = asyncio.create_task(registration.first.wait())
            try:
                await asyncio.wait({running, first}, return_when=asyncio.FIRST_COMPLETED)
                assert registration.incarnation
                assert await client.get(keys.agent("n")) is not None
            finally:
                running.cancel()
                await asyncio.gather(running, first, return_exceptions=True)
                await registration.close()
