# SPDX-License-Identifier: Apache-2.0
"""The agent and a ledger that goes away, forgets it, or was set back."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable

import pytest

from ledger.codec import encode
from ledger.embedded import EtcdCluster
from ledger.etcd import EtcdClient
from ledger.keys import Keys
from ledger.records import Directive, DirectiveKind, Outcome, ProcessState
from nodeagent.backends.sim.faults import FaultKind
from tests.nodeagent.director import COMMIT, NODE, PREPARE, RELEASE, Director
from tests.nodeagent.simnode import DEADLINE, SimNode, until


@pytest.fixture
async def fragile(
    etcd_cluster: Callable[..., EtcdCluster], node: SimNode
) -> AsyncIterator[tuple[Director, EtcdCluster]]:
    """An agent's node with an etcd of its own, to be frozen."""
    cluster = etcd_cluster(1)
    endpoint = cluster.endpoints[0].removeprefix("http://")
    async with EtcdClient([endpoint]) as client:
        yield Director(client, Keys("/t/"), endpoint, node), cluster


async def test_locks_end_by_themselves_when_the_directive_cannot_be_confirmed(
    fragile: tuple[Director, EtcdCluster],
) -> None:
    """Rule 18; and COMMIT locks again."""
    boss, cluster = fragile
    boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    await boss.claim("SIM-0")
    await boss.recorded(lambda record: record.of("a"))  # seen, so that the start of a helper takes no time of PREPARE's
    prepared = await boss.ask(PREPARE, 1, "b", allowed_ms=2000)
    assert prepared.outcome is Outcome.PREPARED
    assert boss.node.driver.state(a.pid) is ProcessState.LOCKED
    cluster.freeze(0)
    a.do("touch SIM-0 1")
    cluster.thaw(0)
    committed = await boss.ask(COMMIT, 1, "b")
    assert committed.outcome is Outcome.COMMITTED
    a.send("touch SIM-0 1")
    assert a.blocked()


async def test_locks_stay_while_the_directive_is_confirmed(boss: Director) -> None:
    boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    await boss.claim("SIM-0")
    await boss.recorded(lambda record: record.of("a"))  # seen, so that the start of a helper takes no time of PREPARE's
    assert (await boss.ask(PREPARE, 1, "b", allowed_ms=2000)).outcome is Outcome.PREPARED
    a.send("touch SIM-0 1")
    for _ in range(22):  # 4.4 s: twice what an unconfirmed lock would last
        assert a.blocked()
    assert boss.node.driver.state(a.pid) is ProcessState.LOCKED
    assert (await boss.ask(RELEASE, 1, "a")).outcome is Outcome.RELEASED
    assert a.answer()["kernels"] == 1


async def test_an_answer_is_given_when_etcd_is_back(fragile: tuple[Director, EtcdCluster]) -> None:
    boss, cluster = fragile
    boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    await boss.ask(PREPARE, 1, "b")
    boss.node.driver.fault(FaultKind.SLOW, job="a", times=1, ms=1000)
    revision = await boss.tell(COMMIT, 1, "b")
    until(lambda: boss.node.events()[-1].name == "checkpoint-begin", "the checkpoint has begun")
    cluster.freeze(0)
    until(lambda: boss.node.events()[-1].name == "checkpoint-end", "it is saved")
    cluster.thaw(0)
    assert (await boss.answer(revision)).outcome is Outcome.COMMITTED
    await boss.switch(2, "a")
    assert a.intact("SIM-0")


async def test_a_registration_that_is_gone_is_made_anew_and_answers_by_its_new_incarnation(boss: Director) -> None:
    boss.start_agent()
    await boss.registered()
    first = await boss.ask(PREPARE, 1, "b")
    key = boss.keys.agent(NODE)
    kept = await boss.client.get(key)
    assert kept is not None
    assert kept.create_revision == first.incarnation
    await boss.client.revoke(kept.lease)
    await boss.registered()
    answer = await boss.ask(PREPARE, 2, "b")
    again = await boss.client.get(key)
    assert again is not None
    assert answer.incarnation == again.create_revision > first.incarnation


async def test_a_restarted_agent_ends_its_old_registration_first(boss: Director) -> None:
    agent = boss.start_agent("--ttl", "60")
    await boss.registered()
    old = await boss.client.get(boss.keys.agent(NODE))
    assert old is not None
    agent.kill()
    agent.wait()
    boss.start_agent("--ttl", "60")
    answer = await boss.ask(PREPARE, 1, "b")
    assert answer.incarnation > old.create_revision
    new = await boss.client.get(boss.keys.agent(NODE))
    assert new is not None
    assert new.lease != old.lease


async def test_a_foreign_registration_is_respected(boss: Director) -> None:
    """Another agent of the same name, with another state folder: this one waits, and answers nothing."""
    other = await boss.client.lease(60)
    await boss.client.put(boss.keys.agent(NODE), encode(Directive()), lease=other.lease_id)
    boss.start_agent()
    revision = await boss.tell(PREPARE, 1, "b")
    until(lambda: "is not this one" in boss.agent_log(), "it says so")
    assert await boss.client.get(boss.keys.ack(NODE, boss.group)) is None
    await other.close()
    assert (await boss.answer(revision)).outcome is Outcome.PREPARED


async def test_sigterm_unlocks_and_deregisters(boss: Director) -> None:
    agent = boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    await boss.ask(PREPARE, 1, "b")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(DEADLINE) == 0
    assert await boss.client.get(boss.keys.agent(NODE)) is None
    a.do("touch SIM-0 1")


async def test_a_directive_that_cannot_be_read_stops_its_group_alone(boss: Director) -> None:
    boss.start_agent()
    await boss.registered()
    for bad in (b"{", encode(Directive(version=99, kind=DirectiveKind.PREPARE, epoch=1))):
        await boss.client.put(boss.keys.directive(NODE, boss.group), bad)
        other = Director(boss.client, boss.keys, boss.endpoint, boss.node, group="h")
        other.devices = ["SIM-1"]
        assert (await other.ask(PREPARE, 1, "b")).outcome is Outcome.PREPARED
        assert await boss.client.get(boss.keys.ack(NODE, boss.group)) is None
    assert (await boss.ask(PREPARE, 1, "b")).outcome is Outcome.PREPARED


@pytest.mark.parametrize("what", ["the directive is gone", "it cannot be read", "nothing can be answered"])
async def test_rule_18_what_is_locked_for_no_answer_is_unlocked(boss: Director, what: str) -> None:
    boss.start_agent()
    a = boss.node.workload("a").attach("SIM-0")
    assert (await boss.ask(PREPARE, 1, "b")).outcome is Outcome.PREPARED
    a.send("touch SIM-0 1")
    assert a.blocked()
    directive = boss.keys.directive(NODE, boss.group)
    match what:
        case "the directive is gone":
            await boss.client.delete(directive)
        case "it cannot be read":
            await boss.client.put(directive, b"{")
        case _:
            # Another agent has its name, so that it can answer nothing, not even a RELEASE.
            other = await boss.client.lease(60)
            await boss.client.put(boss.keys.agent(NODE), encode(Directive()), lease=other.lease_id)
            await boss.client.delete(boss.keys.agent(NODE))
            await boss.client.put(boss.keys.agent(NODE), encode(Directive()), lease=other.lease_id)
            await boss.tell(RELEASE, 1, "a")
    assert a.answer()["kernels"] == 1


async def test_sigterm_is_heard_while_etcd_is_away(fragile: tuple[Director, EtcdCluster]) -> None:
    """A second life first ends the registration of the first, which may take as long as etcd is away."""
    boss, cluster = fragile
    agent = boss.start_agent("--ttl", "60")
    await boss.registered()
    agent.kill()
    agent.wait()
    cluster.freeze(0)
    second = boss.start_agent(log="second.log")
    until(lambda: "cannot be ended yet" in boss.agent_log("second.log"), "it has asked etcd in vain")
    second.send_signal(signal.SIGTERM)
    assert second.wait(DEADLINE) == 0
    cluster.thaw(0)
