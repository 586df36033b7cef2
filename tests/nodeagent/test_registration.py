# SPDX-License-Identifier: Apache-2.0
"""The registration: with a journal that cannot be written for a while, and what is left alone without it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
from pathlib import Path

import pytest

from ledger.etcd import EtcdClient
from ledger.keys import Keys
from ledger.records import Agent, ProcessState
from nodeagent.errors import JournalUnwritable
from nodeagent.journal import Journal
from nodeagent.registration import Registration
from tests.nodeagent.director import Director
from tests.nodeagent.simnode import stopped, until
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


async def test_an_agent_that_is_not_registered_touches_nothing(boss: Director) -> None:
    """Another is, and at work, though it shares no state folder and so no OS lock with this one."""
    first = boss.start_agent("--ttl", "5")
    a = boss.node.workload("a").attach("SIM-0")
    await boss.switch(1, "a")
    await boss.recorded(lambda record: record.of("a"))
    first.send_signal(signal.SIGSTOP)
    until(lambda: stopped(first.pid), "the first stands still")
    boss.node.driver.lock(a.pid, 1000)
    boss.start_agent(state="other", log="second.log")
    until(lambda: boss.node.driver.state(a.pid) is ProcessState.RUNNING, "what is locked for no switch is unlocked")
    said = boss.agent_log("second.log")
    assert said.index("Node n1 is not registered") < said.index("is registered; incarnation")
    assert said.index("is registered; incarnation") < said.index("locked for no switch")


async def test_a_registration_whose_key_is_gone_is_made_anew(etcd: TestEtcd, prefix: bytes, tmp_path: Path) -> None:
    key = Keys(prefix.decode()).agent("n")
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(EtcdClient(etcd.endpoints))
        journal = Journal(tmp_path / "journal")
        stack.callback(journal.close)
        lives: asyncio.Queue[int] = asyncio.Queue()
        registration = Registration(
            client, key, "n", journal, Agent, lambda: lives.put_nowait(registration.incarnation), ttl=10
        )
        running = asyncio.create_task(registration.run())
        try:
            async with asyncio.timeout(30):
                first = await lives.get()
                registration.seen(first, first)
                registration.seen(first, first + 1)
                gone = await client.delete(key)
                registration.seen(0, gone.header.revision)
                assert await lives.get() == 0
                assert await lives.get() > first
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await registration.close()
