# SPDX-License-Identifier: Apache-2.0
"""The guards of what an agent writes, one at a time, against a real etcd: the others hold, so none can stand in."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ledger.codec import encode
from ledger.etcd import EtcdClient
from ledger.keys import Keys
from ledger.records import Ack, Agent, Directive, DirectiveKind, Outcome, Processes
from nodeagent.store import NodeStore, Written
from tests.support.etcd_source import TestEtcd

NODE, GROUP = "n0", "g"


@pytest.fixture
async def store(etcd: TestEtcd, prefix: bytes) -> AsyncIterator[NodeStore]:
    async with EtcdClient(etcd.endpoints) as client:
        yield NodeStore(client, Keys(prefix.decode()), NODE)


async def _register(store: NodeStore) -> int:
    await store.client.delete(store.keys.agent(NODE))
    return (await store.client.put(store.keys.agent(NODE), encode(Agent(boot_id="boot")))).revision


async def _tell(store: NodeStore, epoch: int) -> int:
    told = Directive(kind=DirectiveKind.PREPARE, epoch=epoch)
    return (await store.client.put(store.keys.directive(NODE, GROUP), encode(told))).revision


async def test_rule_7_an_answer_of_an_older_incarnation_is_not_written(store: NodeStore) -> None:
    old, new, told = await _register(store), await _register(store), await _tell(store, 1)
    late = Ack(directive_revision=told, epoch=1, incarnation=old, outcome=Outcome.PREPARED)
    assert (await store.acknowledge(GROUP, late, Processes(), 0))[0] is Written.NOT_REGISTERED
    assert await store.client.get(store.keys.ack(NODE, GROUP)) is None
    written, _ = await store.record(GROUP, Processes(), directive=told, incarnation=old, seen=0)
    assert written is Written.NOT_REGISTERED
    assert await store.client.get(store.keys.processes(NODE, GROUP)) is None
    mine = Ack(directive_revision=told, epoch=1, incarnation=new, outcome=Outcome.PREPARED)
    assert (await store.acknowledge(GROUP, mine, Processes(), 0))[0] is Written.DONE


async def test_rule_7_an_answer_to_an_older_directive_is_not_written(store: NodeStore) -> None:
    incarnation, old = await _register(store), await _tell(store, 1)
    new = await _tell(store, 2)
    late = Ack(directive_revision=old, epoch=1, incarnation=incarnation, outcome=Outcome.PREPARED)
    assert (await store.acknowledge(GROUP, late, None, 0))[0] is Written.DIRECTIVE_CHANGED
    assert await store.client.get(store.keys.ack(NODE, GROUP)) is None
    answer = Ack(directive_revision=new, epoch=2, incarnation=incarnation, outcome=Outcome.PREPARED)
    assert (await store.acknowledge(GROUP, answer, None, 0))[0] is Written.DONE


async def test_rule_7_an_answer_is_final(store: NodeStore) -> None:
    incarnation, told = await _register(store), await _tell(store, 1)
    first = Ack(directive_revision=told, epoch=1, incarnation=incarnation, outcome=Outcome.PREPARED)
    written, revision = await store.acknowledge(GROUP, first, None, 0)
    assert written is Written.DONE
    assert await store.acknowledge(GROUP, first, None, 0) == (Written.DONE, revision)
    second = Ack(directive_revision=told, epoch=1, incarnation=incarnation, outcome=Outcome.REFUSED)
    assert await store.acknowledge(GROUP, second, None, 0) == (Written.ALREADY_ANSWERED, revision)


async def test_a_record_that_is_written_says_that_the_directive_was_in_force(store: NodeStore) -> None:
    """COMMIT goes by it instead of a read: what is there already under another directive is not enough."""
    incarnation, old = await _register(store), await _tell(store, 1)
    done, revision = await store.record(GROUP, Processes(), directive=old, incarnation=incarnation, seen=0)
    assert done is Written.DONE
    again = await store.record(GROUP, Processes(), directive=old, incarnation=incarnation, seen=0)
    assert again == (Written.DONE, revision), "sent twice, it is written once"
    await _tell(store, 2)
    late, _ = await store.record(GROUP, Processes(), directive=old, incarnation=incarnation, seen=0)
    assert late is Written.DIRECTIVE_CHANGED
