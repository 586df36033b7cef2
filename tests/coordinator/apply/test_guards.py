# SPDX-License-Identifier: Apache-2.0
"""The table of guards in docs/protocol.md, row by row: what a transaction compares, it loses when that has changed.

Each test decides on a view, lets somebody else write one key, and applies: nothing may have been changed. Without the
guard the same transaction succeeds, which the last test of each row shows by leaving the key alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest

from coordinator.apply.transaction import transaction
from coordinator.decide import Decision, GroupView, decide
from coordinator.decide.commands import Nothing, acquire, cancel, give_back, unquarantine
from coordinator.picture import Picture
from ledger.codec import decode, encode
from ledger.etcd import EtcdClient
from ledger.etcd.errors import LeaseNotFound
from ledger.keys import Keys
from ledger.records import (
    Agent,
    Claim,
    Device,
    GroupSpec,
    Health,
    Holder,
    Job,
    NodeDevices,
    Phase,
    Resident,
    ResidentKind,
    Ticket,
    TicketState,
    Turn,
)
from ledger.view import Change, Changes
from tests.support.etcd_source import TestEtcd

SPEC = GroupSpec(nodes=(NodeDevices("n0", ("d0",)),))
A = Resident(ResidentKind.JOB, "a")


@dataclass
class Store:
    """One group in etcd, read as a replica reads it."""

    client: EtcdClient
    keys: Keys
    lease: int = 0

    async def view(self) -> GroupView:
        listed = await self.client.get_prefix(self.keys.root)
        picture = Picture(self.keys)
        picture.take(Changes(listed.revision, tuple(Change(kv.key, kv) for kv in listed.kvs)))
        view = picture.group("g")
        assert view is not None
        return view

    async def apply(self, view: GroupView, decision: Decision | Nothing | None) -> bool:
        """Whether the decision was written. If not, nothing at all was."""
        assert isinstance(decision, Decision)
        before = {kv.key: kv for kv in await self.client.get_prefix(self.keys.root)}
        txn = transaction(self.keys, view, decision)
        result = await self.client.txn(txn.compares, txn.ops)
        if not result.succeeded:
            assert {kv.key: kv for kv in await self.client.get_prefix(self.keys.root)} == before
        return result.succeeded

    async def turn(self, turn: Turn) -> None:
        await self.client.put(self.keys.turn("g"), encode(turn))

    async def ticket(self, job: str, ticket: Ticket | None = None) -> None:
        await self.client.put(self.keys.ticket("g", job), encode(ticket or self.new()), lease=self.lease)

    async def again(self, job: str) -> None:
        """The ticket goes and one of the same job comes back: another create revision."""
        await self.client.delete(self.keys.ticket("g", job))
        await self.ticket(job)

    def new(self, **values: object) -> Ticket:
        return Ticket(session=f"{self.lease:016x}", sequence=1, **values)  # type: ignore[arg-type]


@pytest.fixture
async def store(etcd: TestEtcd, prefix: bytes) -> AsyncIterator[Store]:
    """Group g on one node, IDLE with a resident, nobody in the queue."""
    async with EtcdClient(etcd.endpoints) as client:
        keys = Keys(prefix.decode())
        store = Store(client, keys, (await client.grant(600)).lease_id)
        await client.put(keys.spec("g"), encode(SPEC))
        view = await store.view()
        assert view.spec is not None
        await client.put(keys.claim("n0", "d0"), encode(Claim(group="g")))
        await client.put(keys.agent("n0"), encode(Agent(boot_id="b", devices=(Device("d0"),))))
        await store.turn(Turn(epoch=1, token=1, resident=A, nodes=("n0",), generation=view.spec.mod))
        yield store


async def write_turn(store: Store) -> None:
    view = await store.view()
    assert view.turn is not None
    await store.turn(view.turn.value)


async def write_spec(store: Store) -> None:
    await store.client.put(store.keys.spec("g"), encode(SPEC))


async def quarantine(store: Store) -> None:
    await store.client.put(store.keys.job("g", "b"), encode(Job(health=Health.QUARANTINED)))


async def leave_alone(store: Store) -> None:
    """Nothing has changed: the same transaction is written."""


Meddle = Callable[[Store], object]


@pytest.mark.parametrize("meddle", [write_spec, quarantine, lambda store: store.ticket("b"), leave_alone])
async def test_a_ticket_is_made_against_spec_absence_and_health(store: Store, meddle: Meddle) -> None:
    view = await store.view()
    decision = acquire(view, "b", store.new())
    await meddle(store)  # type: ignore[misc]
    assert await store.apply(view, decision) is (meddle is leave_alone)


@pytest.mark.parametrize("meddle", [write_turn, write_spec, lambda store: store.ticket("c"), leave_alone])
async def test_rule_33_a_grant_with_the_ticket_needs_the_queue_empty(store: Store, meddle: Meddle) -> None:
    view = await store.view()
    decision = acquire(view, "a", store.new())
    assert isinstance(decision, Decision)
    assert decision.turn is not None
    await meddle(store)  # type: ignore[misc]
    assert await store.apply(view, decision) is (meddle is leave_alone)


@pytest.mark.parametrize("meddle", [write_turn, quarantine, leave_alone])
async def test_rule_23_that_a_job_is_sound_compares_the_turn_and_its_record_and_writes_both(
    store: Store, meddle: Meddle
) -> None:
    await quarantine(store)
    view = await store.view()
    decision = unquarantine(view, "b")
    await meddle(store)  # type: ignore[misc]
    done = await store.apply(view, decision)
    assert done is (meddle is leave_alone)
    now = await store.view()
    assert view.turn is not None and now.turn is not None
    if done:
        assert now.turn.value == view.turn.value and now.turn.mod > view.turn.mod
        assert now.quarantined("b") is None


@pytest.mark.parametrize("meddle", [write_turn, lambda store: store.again("a"), leave_alone])
async def test_a_grant_compares_the_turn_and_the_ticket(store: Store, meddle: Meddle) -> None:
    await store.ticket("a")
    view = await store.view()
    decision = decide(view).decision
    assert decision is not None
    assert decision.turn is not None
    assert decision.turn.phase is Phase.HELD
    await meddle(store)  # type: ignore[misc]
    assert await store.apply(view, decision) is (meddle is leave_alone)


async def test_rule_1_a_grant_keeps_the_ticket_on_its_lease(store: Store) -> None:
    await store.ticket("a")
    view = await store.view()
    assert await store.apply(view, decide(view).decision)
    kv = await store.client.get(store.keys.ticket("g", "a"))
    assert kv is not None
    assert kv.lease == store.lease
    assert decode(Ticket, kv.value).state is TicketState.GRANTED
    await store.client.revoke(store.lease)
    assert await store.client.get(store.keys.ticket("g", "a")) is None


async def held(store: Store) -> GroupView:
    view = await store.view()
    assert view.turn is not None
    await store.ticket("a", store.new(state=TicketState.GRANTED, token=5))
    holder = Holder("a", f"{store.lease:016x}")
    turn = Turn(Turn().version, Phase.HELD, 1, 5, 0, holder, A, None, ("n0",), (), view.turn.value.generation)
    await store.turn(turn)
    return await store.view()


@pytest.mark.parametrize("meddle", [write_turn, lambda store: store.again("a"), leave_alone])
async def test_a_yield_compares_the_turn_and_the_ticket(store: Store, meddle: Meddle) -> None:
    view = await held(store)
    decision = give_back(view, "a", f"{store.lease:016x}", 5)
    await meddle(store)  # type: ignore[misc]
    assert await store.apply(view, decision) is (meddle is leave_alone)


@pytest.mark.parametrize("meddle", [write_turn, lambda store: store.again("b"), leave_alone])
async def test_a_cancel_compares_the_turn_and_the_ticket(store: Store, meddle: Meddle) -> None:
    await held(store)
    await store.ticket("b")
    view = await store.view()
    decision = cancel(view, "b", f"{store.lease:016x}", 1)
    await meddle(store)  # type: ignore[misc]
    assert await store.apply(view, decision) is (meddle is leave_alone)


@pytest.mark.parametrize("meddle", [write_turn, lambda store: store.again("b"), leave_alone])
async def test_rule_35_a_yield_that_prepares_for_the_head_compares_its_ticket(store: Store, meddle: Meddle) -> None:
    await held(store)
    await store.ticket("b")
    view = await store.view()
    decision = give_back(view, "a", f"{store.lease:016x}", 5)
    assert isinstance(decision, Decision)
    assert decision.turn is not None
    assert decision.turn.phase is Phase.PREPARING
    await meddle(store)  # type: ignore[misc]
    assert await store.apply(view, decision) is (meddle is leave_alone)


@pytest.mark.parametrize("meddle", [write_turn, write_spec, leave_alone])
async def test_rule_4_a_spec_is_adopted_against_the_turn_and_the_spec(store: Store, meddle: Meddle) -> None:
    await write_spec(store)
    view = await store.view()
    decision = decide(view).decision
    assert decision is not None
    assert decision.turn is not None
    assert decision.turn.generation == (view.spec.mod if view.spec else 0)
    await meddle(store)  # type: ignore[misc]
    assert await store.apply(view, decision) is (meddle is leave_alone)


@pytest.mark.parametrize("meddle", [write_turn, write_spec, lambda store: store.ticket("b"), leave_alone])
async def test_rule_27_a_group_is_removed_against_the_turn_the_spec_and_an_empty_queue(
    store: Store, meddle: Meddle
) -> None:
    deleting = GroupSpec(nodes=SPEC.nodes, deleting=True)
    await store.client.put(store.keys.spec("g"), encode(deleting))
    view = await store.view()
    decision = decide(view).decision
    assert decision is not None
    assert decision.remove_group
    await meddle(store)  # type: ignore[misc]
    written = await store.apply(view, decision)
    assert written is (meddle is leave_alone)
    if written:
        assert not [kv for kv in await store.client.get_prefix(store.keys.root) if b"/groups/g/" in kv.key]


async def test_rule_11_a_claim_is_made_only_where_there_is_none(store: Store) -> None:
    wider = GroupSpec(nodes=(NodeDevices("n0", ("d0", "d1")),))
    await store.client.put(store.keys.spec("g"), encode(wider))
    view = await store.view()
    decision = decide(view).decision
    assert decision is not None
    assert decision.claim == (("n0", "d1"),)
    await store.client.put(store.keys.claim("n0", "d1"), encode(Claim(group="other")))
    assert not await store.apply(view, decision)


async def test_a_ticket_under_a_session_that_is_gone_is_not_made(store: Store) -> None:
    view = await store.view()
    decision = acquire(view, "b", store.new())
    await store.client.revoke(store.lease)
    assert isinstance(decision, Decision)
    txn = transaction(store.keys, view, decision)
    with pytest.raises(LeaseNotFound):
        await store.client.txn(txn.compares, txn.ops)


async def test_rule_6_directives_to_300_nodes_are_one_transaction(store: Store) -> None:
    names = tuple(f"n{number}" for number in range(300))
    many = GroupSpec(nodes=tuple(NodeDevices(name, ("d0",)) for name in names))
    await store.client.put(store.keys.spec("g"), encode(many))
    view = await store.view()
    assert view.spec is not None
    for name in names:
        await store.client.put(store.keys.agent(name), encode(Agent(boot_id="b")))
        await store.client.put(store.keys.claim(name, "d0"), encode(Claim(group="g")))
    await store.turn(Turn(epoch=1, token=1, resident=A, nodes=names, generation=view.spec.mod))
    await store.ticket("b")
    view = await store.view()
    decision = decide(view).decision
    assert decision is not None
    assert len(decision.directives) == 300
    txn = transaction(store.keys, view, decision)
    result = await store.client.txn(txn.compares, txn.ops)
    assert result.succeeded
    for name in (names[0], names[150], names[299]):
        kv = await store.client.get(store.keys.directive(name, "g"))
        assert kv is not None
        assert kv.mod_revision == result.revision
