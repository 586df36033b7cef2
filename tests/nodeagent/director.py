# SPDX-License-Identifier: Apache-2.0
"""Plays the coordinator for one agent: writes directives, reads answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

from ledger.codec import decode, encode
from ledger.etcd import EtcdClient
from ledger.keys import Keys
from ledger.records import (
    Ack,
    Agent,
    Claim,
    Directive,
    DirectiveKind,
    Outcome,
    Processes,
    ProcessRecord,
)
from tests.nodeagent.simnode import DEADLINE, SimNode, start

R = TypeVar("R")
NODE, GROUP = "n1", "g"
PREPARE, COMMIT, RELEASE = DirectiveKind.PREPARE, DirectiveKind.COMMIT, DirectiveKind.RELEASE


class Director:
    """One group's directives to one node, and an agent for them."""

    def __init__(self, client: EtcdClient, keys: Keys, endpoint: str, node: SimNode, group: str = GROUP) -> None:
        self.client, self.keys, self.endpoint, self.node, self.group = client, keys, endpoint, node, group
        self.devices = ["SIM-0"]

    # The agent

    def start_agent(
        self, *arguments: str, failpoints: str = "", state: str = "state", log: str = "agent.log"
    ) -> subprocess.Popen[bytes]:
        command = ["-m", "nodeagent", "--node", NODE, "--backend", "sim", "--sim-socket", str(self.node.socket)]
        places = ["--state-dir", str(self.node.folder / state), "--etcd", self.endpoint, "--prefix", self.keys.prefix]
        with (self.node.folder / log).open("ab") as output:
            agent = start(
                [*command, *places, "--ttl", "2", "--host-memory", str(1 << 40), "--verbose", *arguments],
                env={"TIMESLICE_FAILPOINTS": failpoints} if failpoints else {},
                stderr=output,
            )
        self.node.keep(agent)
        return agent

    def agent_log(self, log: str = "agent.log") -> str:
        return (self.node.folder / log).read_text()

    async def registered(self) -> Agent:
        return await self._await(self.keys.agent(NODE), Agent, lambda _: True)

    # Its directives

    async def claim(self, device: str, group: str | None = None) -> None:
        await self.client.put(self.keys.claim(NODE, device), encode(Claim(group=group or self.group)))

    async def tell(self, kind: DirectiveKind, epoch: int, on: str = "", **more: Any) -> int:
        """Write a directive. Returns its mod revision."""
        directive = Directive(
            kind=kind,
            epoch=epoch,
            on=on,
            devices=tuple(self.devices),
            allowed_ms=more.pop("allowed_ms", int(DEADLINE * 1000)),
            **more,
        )
        result = await self.client.put(self.keys.directive(NODE, self.group), encode(directive))
        return result.revision

    async def answer(self, revision: int) -> Ack:
        """The answer to the directive of this mod revision."""
        return await self._await(self.keys.ack(NODE, self.group), Ack, lambda ack: ack.directive_revision == revision)

    async def ask(self, kind: DirectiveKind, epoch: int, on: str = "", **more: Any) -> Ack:
        return await self.answer(await self.tell(kind, epoch, on, **more))

    async def switch(self, epoch: int, on: str = "", **more: Any) -> Ack:
        """PREPARE and COMMIT, both expected to be carried out."""
        prepared = await self.ask(PREPARE, epoch, on, **more)
        assert prepared.outcome is Outcome.PREPARED, prepared
        committed = await self.ask(COMMIT, epoch, on, **more)
        assert committed.outcome is Outcome.COMMITTED, committed
        return committed

    async def records(self, job: str) -> tuple[ProcessRecord, ...]:
        found = await self.client.get(self.keys.processes(NODE, self.group))
        return decode(Processes, found.value).of(job) if found else ()

    async def recorded(self, true: Any) -> Processes:
        """Wait for a process record that makes ``true`` true."""
        return await self._await(self.keys.processes(NODE, self.group), Processes, true)

    async def _await(self, key: bytes, cls: type[R], true: Any) -> R:
        async with asyncio.timeout(DEADLINE):
            async with self.client.watch(key, exact=True) as batches:
                found = await self.client.get(key)
                if found is not None and true(record := decode(cls, found.value)):
                    return record
                async for batch in batches:
                    for event in batch.events:
                        if event.kv.value and true(record := decode(cls, event.kv.value)):
                            return record
        raise AssertionError("the watch ended")


@contextlib.asynccontextmanager
async def director(endpoint: str, prefix: bytes, node: SimNode) -> AsyncIterator[Director]:
    async with EtcdClient([endpoint]) as client:
        yield Director(client, Keys(prefix.decode()), endpoint, node)


def kill_helpers(folder: Path) -> None:
    """SIGKILL every helper that holds a device's lock in this state folder."""
    from nodeagent.flocks import holders_of

    for path in (folder / "locks").glob("*.lock"):
        for pid in holders_of(path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
