# SPDX-License-Identifier: Apache-2.0
"""An agent that moves nothing: it registers and answers directives as the test says. For tests of the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ledger.codec import decode, encode
from ledger.etcd import EtcdClient, KeyValue
from ledger.etcd.txn import Put, absent, created_at, modified_at
from ledger.keys import Keys
from ledger.records import Ack, Agent, Device, Directive, DirectiveKind, Outcome
from ledger.view import Changes, LedgerView

Answer = Callable[[Directive], Ack | None]

_GOOD = {
    DirectiveKind.PREPARE: Outcome.PREPARED,
    DirectiveKind.COMMIT: Outcome.COMMITTED,
    DirectiveKind.RELEASE: Outcome.RELEASED,
}


def obey(directive: Directive) -> Ack:
    """Everything succeeds."""
    return Ack(outcome=_GOOD[directive.kind])


class ScriptedAgent:
    """Registers `node` with `devices` and answers each directive by `answer`; None leaves it unanswered."""

    def __init__(
        self, client: EtcdClient, keys: Keys, node: str, devices: tuple[str, ...] = ("d0",), answer: Answer = obey
    ) -> None:
        self.answer = answer
        self.seen: list[Directive] = []
        self._client, self._keys, self._node = client, keys, node
        self._devices = devices
        self._incarnation = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._view = LedgerView(client, keys.directives(node), self._changed)

    async def start(self) -> None:
        lease = await self._client.lease(10)
        self._lease = lease
        record = Agent(boot_id="boot", capabilities=("sim",), devices=tuple(Device(one) for one in self._devices))
        key = self._keys.agent(self._node)
        result = await self._client.txn((absent(key),), (Put(key, encode(record), lease=lease.lease_id),))
        assert result.succeeded
        self._incarnation = result.revision
        await self._view.start(10)

    async def close(self) -> None:
        await self._view.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._lease.close()

    def _changed(self, changes: Changes) -> None:
        for change in changes.changes:
            if change.kv is not None:
                task = asyncio.create_task(self._obey(change.kv))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _obey(self, kv: KeyValue) -> None:
        directive = decode(Directive, kv.value)
        self.seen.append(directive)
        answer = self.answer(directive)
        if answer is None:
            return
        group = kv.key.rsplit(b"/", 1)[1].decode()
        ack = Ack(
            directive_revision=kv.mod_revision,
            epoch=directive.epoch,
            incarnation=self._incarnation,
            outcome=answer.outcome,
            fault=answer.fault,
            failure=answer.failure,
            job=answer.job,
            why=answer.why,
            highest_epoch=answer.highest_epoch,
            restored=answer.restored,
        )
        guards = (modified_at(kv.key, kv.mod_revision), created_at(self._keys.agent(self._node), self._incarnation))
        await self._client.txn(guards, (Put(self._keys.ack(self._node, group), encode(ack)),))
