# SPDX-License-Identifier: Apache-2.0
"""The engine against a real etcd: commands, hand-offs, several replicas, and who acts when one is gone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

import ledger.view
from bench.fleet import LOST
from coordinator.apply.engine import Applied, Engine
from coordinator.apply.errors import Conflict, EngineUnavailable
from coordinator.apply.hedge import rank
from coordinator.decide import Decision, GroupView
from coordinator.decide.commands import Nothing, Refusal, acquire, cancel, give_back, pause
from ledger.codec import encode
from ledger.etcd import EtcdClient, TxnResult
from ledger.etcd.errors import Unavailable
from ledger.etcd.txn import Compare
from ledger.keys import Keys
from ledger.records import (
    Claim,
    GroupSpec,
    NodeDevices,
    Phase,
    Process,
    Replica,
    ResidentKind,
    Ticket,
    TicketState,
    Turn,
)
from tests.support.etcd_source import TestEtcd
from tests.support.proxy import Proxy
from tests.support.scripted_agent import ScriptedAgent
from tests.support.until import until as until_true

NODES = ("n0", "n1")


class World:
    """A prefix with two scripted agents, and replicas and sessions on demand."""

    def __init__(self, endpoints: list[str], keys: Keys, stack: contextlib.AsyncExitStack) -> None:
        self.endpoints, self.keys, self._stack = endpoints, keys, stack
        self.agents: dict[str, ScriptedAgent] = {}

    async def client(self) -> EtcdClient:
        return await self._stack.enter_async_context(EtcdClient(self.endpoints))

    async def replica(self, name: str) -> Engine:
        engine = Engine(await self.client(), self.keys, name)
        await engine.start()
        self._stack.push_async_callback(engine.close)
        return engine

    async def agent(self, node: str) -> ScriptedAgent:
        agent = ScriptedAgent(await self.client(), self.keys, node)
        await agent.start()
        self._stack.push_async_callback(agent.close)
        self.agents[node] = agent
        return agent

    async def group(self, name: str = "g") -> None:
        client = await self.client()
        spec = GroupSpec(nodes=tuple(NodeDevices(node, ("d0",)) for node in NODES))
        await client.put(self.keys.spec(name), encode(spec))
        for node in NODES:
            await client.put(self.keys.claim(node, "d0"), encode(Claim(group=name)))

    async def ticket(self, sequence: int = 1) -> Ticket:
        client = await self.client()
        proof = await client.grant(30)
        return Ticket(session=f"{proof.lease_id:016x}", process=Process("boot", 1, 1), sequence=sequence)


@pytest.fixture
async def world(etcd: TestEtcd, prefix: bytes) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        yield World(list(etcd.endpoints), Keys(prefix.decode()), stack)


async def until(engine: Engine, holds: Callable[[GroupView], bool], within: float = 20.0) -> GroupView:
    """Wait for a state of the group, woken by its changes."""
    changed = asyncio.Event()
    end = engine.subscribe(lambda _groups: changed.set())
    try:
        async with asyncio.timeout(within):
            while True:
                view = engine.picture.group("g")
                if view is not None and holds(view):
                    return view
                changed.clear()
                await changed.wait()
    except TimeoutError:
        pytest.fail(f"not reached; the group is {engine.picture.turn('g')}, {engine.picture.note('g')}")
    finally:
        end()


def turn(view: GroupView) -> Turn:
    return view.turn.value if view.turn else Turn()


def granted(job: str) -> Callable[[GroupView], bool]:
    def holds(view: GroupView) -> bool:
        ticket = view.ticket(job)
        return ticket is not None and ticket.value.state is TicketState.GRANTED and turn(view).phase is Phase.HELD

    return holds


async def test_two_jobs_take_turns_on_one_replica(world: World) -> None:
    for node in NODES:
        await world.agent(node)
    engine = await world.replica("r0")
    await world.group()
    await until(engine, lambda view: turn(view).resident is not None and turn(view).phase is Phase.IDLE)

    first, second = await world.ticket(), await world.ticket()
    assert isinstance(await engine.command("g", partial(acquire, job="a", ticket=first)), Applied)
    token = turn(await until(engine, granted("a"))).token
    await engine.command("g", partial(acquire, job="b", ticket=second))
    await engine.command("g", partial(give_back, job="a", session=first.session, token=token))
    view = await until(engine, granted("b"))
    assert turn(view).token > token

    with pytest.raises(Refusal) as refused:
        await engine.command("g", partial(give_back, job="a", session=first.session, token=token - 1))
    assert refused.value.reason == "STALE_TOKEN"
    again = await engine.command("g", partial(give_back, job="a", session=first.session, token=token))
    assert isinstance(again, Nothing)


async def test_rule_33_an_uncontended_acquire_and_yield_are_one_transaction_each(world: World) -> None:
    for node in NODES:
        await world.agent(node)
    engine = await world.replica("r0")
    await world.group()
    ticket = await world.ticket()
    await engine.command("g", partial(acquire, job="a", ticket=ticket))
    token = turn(await until(engine, granted("a"))).token
    await engine.command("g", partial(give_back, job="a", session=ticket.session, token=token))
    before = engine.client.requests["txn"]
    applied = await engine.command("g", partial(acquire, job="a", ticket=ticket))
    assert isinstance(applied, Applied)
    assert applied.decision.turn is not None
    assert applied.decision.turn.phase is Phase.HELD
    await engine.command("g", partial(give_back, job="a", session=ticket.session, token=applied.decision.turn.token))
    await until(engine, lambda view: turn(view).phase is Phase.IDLE)
    assert engine.client.requests["txn"] - before == 2
    resident = turn(engine.picture.group("g") or pytest.fail("gone")).resident
    assert resident is not None
    assert (resident.kind, resident.job) == (ResidentKind.JOB, "a")


async def test_who_asked_has_the_answer_before_the_picture_shows_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch is faster than the answer; to look at what it brings is not to hold up who waits for that.

    Nor is the answer's way to whoever has asked; the next command does not wait for this to be over.
    """
    monkeypatch.setattr(ledger.view, "ANSWER_FIRST", 60.0)
    monkeypatch.setattr(ledger.view, "AFTERWARDS", 60.0)
    for node in NODES:
        await world.agent(node)
    engine = await world.replica("r0")
    await world.group()
    ticket = await world.ticket()
    ask = partial(acquire, job="a", ticket=ticket)
    await engine.command("g", ask)
    token = turn(await until(engine, granted("a"))).token
    for _ in range(10):
        back = await engine.command("g", partial(give_back, job="a", session=ticket.session, token=token))
        assert isinstance(back, Applied)
        assert engine.picture.revision < back.revision
        asked = await engine.command("g", ask)
        assert isinstance(asked, Applied)
        assert asked.decision.turn is not None
        assert engine.picture.revision < asked.revision
        token = asked.decision.turn.token


async def test_nothing_is_decided_while_a_command_writes_the_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two would lose its guard. What has come meanwhile is looked at afterwards, where it has failed too."""
    for node in NODES:
        await world.agent(node)
    engine = await world.replica("r0")
    await world.group()
    ticket = await world.ticket()
    await engine.command("g", partial(acquire, job="a", ticket=ticket))
    await until(engine, granted("a"))
    sent, gate, txn = 0, asyncio.Event(), engine.commit.txn

    async def fails(*_: object, **__: object) -> TxnResult:
        nonlocal sent
        sent += 1
        await gate.wait()
        raise Unavailable("nobody is there", ambiguous=False)

    monkeypatch.setattr(engine.commit, "txn", fails)
    pausing = asyncio.create_task(engine.command("g", partial(pause, paused=True)))
    await until_true(lambda: sent == 1)
    await engine.client.revoke(int(ticket.session, 16))
    await until(engine, lambda view: not view.tickets)
    await asyncio.sleep(0.1)  # for a decision that must not come
    monkeypatch.setattr(engine.commit, "txn", txn)
    gate.set()
    with pytest.raises(EngineUnavailable):
        await pausing
    assert sent == 1
    await until(engine, lambda view: turn(view).phase is Phase.IDLE)


async def test_what_tells_nodes_to_prepare_does_not_rest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their answers would have to wait behind it."""
    monkeypatch.setattr(ledger.view, "ANSWER_FIRST", 60.0)
    monkeypatch.setattr(ledger.view, "AFTERWARDS", 60.0)
    for node in NODES:
        await world.agent(node)
    engine = await world.replica("r0")
    await world.group()
    first, second = await world.ticket(), await world.ticket()
    await engine.command("g", partial(acquire, job="a", ticket=first))
    token = turn(await until(engine, granted("a"))).token
    await engine.command("g", partial(acquire, job="b", ticket=second))
    await engine.command("g", partial(give_back, job="a", session=first.session, token=token))
    await until(engine, granted("b"))


async def test_a_refusal_is_believed_only_on_a_view_as_new_as_etcd(world: World) -> None:
    """One replica grants, the other is asked for the yield before its watch has brought the grant."""
    for node in NODES:
        await world.agent(node)
    one, other = await world.replica("r0"), await world.replica("r1")
    await world.group()
    ticket = await world.ticket()
    await one.command("g", partial(acquire, job="a", ticket=ticket))
    token = turn(await until(one, granted("a"))).token
    for _ in range(20):
        await one.command("g", partial(give_back, job="a", session=ticket.session, token=token))
        applied = await one.command("g", partial(acquire, job="a", ticket=ticket))
        assert isinstance(applied, Applied)
        assert applied.decision.turn is not None
        token = applied.decision.turn.token
        given = await other.command("g", partial(give_back, job="a", session=ticket.session, token=token))
        assert isinstance(given, Applied)
        applied = await one.command("g", partial(acquire, job="a", ticket=ticket))
        assert isinstance(applied, Applied)
        assert applied.decision.turn is not None
        token = applied.decision.turn.token


async def test_that_a_record_cannot_be_read_is_believed_only_on_a_view_as_new_as_etcd(world: World) -> None:
    """The record is mended while the replica's watch still shows the broken one."""
    engine, client = await world.replica("r0"), await world.client()
    await world.group()
    key = world.keys.turn("g")
    await until(engine, lambda view: view.turn is not None)
    for _ in range(20):
        kept = await client.get(key)
        assert kept is not None
        ticket = await world.ticket()
        broken = await client.put(key, b"nonsense")
        await engine.view.reached(broken.revision, 20)
        await client.put(key, kept.value)
        assert isinstance(await engine.command("g", partial(acquire, job="a", ticket=ticket)), Applied)
        await engine.command("g", partial(cancel, job="a", session=ticket.session, sequence=1))


async def test_a_switch_goes_on_when_the_replica_that_began_it_is_gone(world: World) -> None:
    for node in NODES:
        await world.agent(node)
    one, other = await world.replica("r0"), await world.replica("r1")
    await world.group()
    await until(other, lambda view: turn(view).phase is Phase.IDLE and turn(view).epoch > 0)
    for node in NODES:
        world.agents[node].answer = lambda _directive: None
    await one.command("g", partial(acquire, job="a", ticket=await world.ticket()))
    await until(other, lambda view: turn(view).phase is Phase.PREPARING)
    await one.close()
    agents = [await _again(world, node) for node in NODES]
    await until(other, granted("a"))
    assert all(agent.seen for agent in agents)


async def test_replicas_that_are_well_do_not_compete(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever carries out a command, what follows from the agents' answers is written by the one that ranks first."""
    for step in ("LEAST_STEP", "MOST_STEP"):  # on a slow machine, too, nobody is passed over
        monkeypatch.setattr(f"coordinator.apply.hedge.{step}", 60.0)
    for node in NODES:
        await world.agent(node)
    replicas = [await world.replica(name) for name in ("r0", "r1", "r2")]
    client = await world.client()
    lease = (await client.grant(60)).lease_id
    for one in replicas:
        record = Replica(address=one.replica_id)
        await client.put(world.keys.replica(one.replica_id), encode(record), lease=lease)
    for one in replicas:
        await one.view.reached((await client.get_prefix(world.keys.root)).revision, 20)
    await world.group()
    await until(replicas[0], lambda view: turn(view).resident is not None and turn(view).phase is Phase.IDLE)
    for one in replicas:  # who has yet to see the devices claimed would compete with who has claimed them: this test
        await one.view.reached((await client.get_prefix(world.keys.root)).revision, 20)
    lost: list[str] = []
    for one in replicas:
        monkeypatch.setattr(one.commit, "txn", _noting(one, lost))
    tickets = {job: await world.ticket() for job in "ab"}
    await replicas[1].command("g", partial(acquire, job="a", ticket=tickets["a"]))
    for receiver, (job, following) in zip(replicas, ("ab", "ba", "ab"), strict=True):
        token = turn(await until(receiver, granted(job))).token
        await replicas[2].command("g", partial(acquire, job=following, ticket=tickets[following]))
        await receiver.view.reached(replicas[2].picture.revision, 20)
        await receiver.command("g", partial(give_back, job=job, session=tickets[job].session, token=token))
    await until(replicas[0], granted("b"))
    assert not lost


def _noting(engine: Engine, lost: list[str]) -> Callable[..., Any]:
    """The engine's `txn`, which notes each transaction that loses a guard."""
    txn = engine.commit.txn

    async def noting(compares: Any, ops: Any, **more: Any) -> Any:
        result = await txn(compares, ops, **more)
        if not result.succeeded:
            lost.append(f"{engine.replica_id}: {ops[0].key!r}")
        return result

    return noting


async def _again(world: World, node: str) -> ScriptedAgent:
    await world.agents[node].close()
    return await world.agent(node)


async def test_waiters_who_come_and_go_do_not_put_off_who_acts_for_another(world: World) -> None:
    """The replica that ranks first is dead but still registered; the queue changes all the time."""
    other = await world.replica("r1")
    client = await world.client()
    lease = (await client.grant(60)).lease_id
    first = next(name for name in (f"x{n}" for n in range(100)) if rank("r1", (name, "r1"), "g") == 1)
    for name in (first, "r1"):
        await client.put(world.keys.replica(name), encode(Replica(address="nowhere")), lease=lease)
    await world.group()
    churning = asyncio.create_task(_churn(world, client, lease))
    try:
        # Without agents nobody is served, but the spec is to be adopted, which takes a turn: r1 has to write it.
        await until(other, lambda view: view.turn is not None)
    finally:
        churning.cancel()
        await asyncio.gather(churning, return_exceptions=True)


async def _churn(world: World, client: EtcdClient, lease: int) -> None:
    for number in itertools.count():
        key = world.keys.ticket("g", f"j{number % 7}")
        await client.put(key, encode(Ticket(session=f"{lease:016x}", sequence=number)), lease=lease)
        await asyncio.sleep(0.01)
        await client.delete(key)


async def test_a_cancelled_waiter_leaves_nothing(world: World) -> None:
    engine = await world.replica("r0")  # no agents: nobody is served
    await world.group()
    ticket = await world.ticket()
    await engine.command("g", partial(acquire, job="a", ticket=ticket))
    await engine.command("g", partial(cancel, job="a", session=ticket.session, sequence=1))
    view = await until(engine, lambda view: not view.tickets)
    assert turn(view).phase is Phase.IDLE


async def test_closing_finishes_the_write_in_hand(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await world.replica("r0")
    begun, go, txn = asyncio.Event(), asyncio.Event(), engine.commit.txn

    async def slow(*arguments: Any, **more: Any) -> Any:
        begun.set()
        await go.wait()
        return await txn(*arguments, **more)

    monkeypatch.setattr(engine.commit, "txn", slow)
    await world.group()
    async with asyncio.timeout(20):
        await begun.wait()
        closing = asyncio.create_task(engine.close())
        done, _ = await asyncio.wait({closing}, timeout=0.2)
        assert not done
        go.set()
        await closing
    assert await (await world.client()).get(world.keys.turn("g")) is not None


async def test_nothing_is_kept_of_groups_that_are_gone_or_never_were(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await world.replica("r0")
    for number in range(3):
        with pytest.raises(Refusal):
            await engine.command(f"none-{number}", partial(acquire, job="a", ticket=await world.ticket()))
    await world.group()
    await until(engine, lambda view: view.turn is not None)
    removed, gone, txn = asyncio.Event(), asyncio.Event(), engine.commit.txn

    async def told(compares: Any, ops: Any, **more: Any) -> Any:
        result = await txn(compares, ops, **more)
        if any(op.key == world.keys.spec("g") for op in ops):
            asyncio.get_running_loop().call_soon(removed.set)
        return result

    monkeypatch.setattr(engine.commit, "txn", told)
    engine.subscribe(lambda _groups: None if engine._workers else gone.set())
    spec = GroupSpec(nodes=tuple(NodeDevices(node, ("d0",)) for node in NODES), deleting=True)
    await (await world.client()).put(world.keys.spec("g"), encode(spec))
    async with asyncio.timeout(20):
        await asyncio.gather(gone.wait(), removed.wait())
    assert (engine._workers, engine._floors, dict(engine.picture._claim_nodes)) == ({}, {}, {})


async def test_a_command_that_loses_every_guard_ends_as_a_conflict(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Each time that it is asked, another writer changes the turn before it is written. The log has a line for each."""
    caplog.set_level(logging.INFO)
    engine, client = await world.replica("r0"), await world.client()
    await world.group()
    await until(engine, lambda view: view.turn is not None)
    now = 0.0
    engine.clock = lambda: now
    lost = 0

    async def other() -> None:
        kept = await client.get(world.keys.turn("g"))
        assert kept is not None
        await client.put(kept.key, kept.value)

    write = engine.write

    async def late(view: GroupView, decision: Decision, deadline: float, guards: Sequence[Compare] = ()) -> int | None:
        nonlocal now, lost
        if decision.why == "x":  # the engine's own decisions go on as ever
            await other()
            now, lost = now + 2.0, lost + 1
        return await write(view, decision, deadline, guards)

    engine.write = late  # type: ignore[method-assign, assignment]
    with pytest.raises(Conflict):
        await engine.command("g", lambda view: Decision("x", replace(turn(view), paused=True)), within=5.0)
    assert lost == 3
    assert caplog.text.count(LOST) >= 3  # the engine's own decisions may lose one too


def fire(timer: asyncio.TimerHandle) -> None:
    """Its time has come."""
    timer._run()
    timer.cancel()


async def test_rule_24_a_wait_with_an_outage_in_it_begins_anew(world: World) -> None:
    """The agents may have been cut off, too: what they were given to answer in has not passed."""
    async with Proxy(world.endpoints[0].removeprefix("http://")) as proxy, EtcdClient([proxy.endpoint]) as client:
        engine = Engine(client, world.keys, "r0")
        await engine.start()
        for node in NODES:
            (await world.agent(node)).answer = lambda _directive: None
        await world.group()
        await until(engine, lambda view: turn(view).phase is Phase.PREPARING)
        worker = engine._workers["g"]
        await until_true(lambda: bool(worker._timers))
        ((wait, timer),) = worker._timers.items()
        before = engine.view.breaks
        proxy.cut()
        await until_true(lambda: engine.view.breaks > before and engine.view.live)
        fire(timer)
        assert wait not in worker._passed
        await until_true(lambda: wait in worker._timers)
        fire(worker._timers[wait])
        assert wait in worker._passed
        await engine.close()
