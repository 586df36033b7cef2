# SPDX-License-Identifier: Apache-2.0
"""Sessions and acquires over a stream, on one replica and across two."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc.aio
import pytest

import ledger.view
from coordinator.decide import Decision, GroupView
from coordinator.decide.decision import Create
from coordinator.serve import acquire
from coordinator.serve.expiry import Expiry
from coordinator.serve.stream import SessionStream
from ledger.codec import decode
from ledger.etcd.records import TxnResult
from ledger.etcd.txn import Compare
from ledger.records import Ack, Directive, Session, TicketState
from tests.coordinator.serve.world import PROCESS, Client, World, refused, state_of, until_seen
from tests.support.scripted_agent import obey
from tests.support.until import until
from timeslice_proto.v1 import coordinator_pb2 as pb
from timeslice_proto.v1 import records_pb2


async def test_a_session_is_a_leased_key_with_the_hash_of_its_secret(world: World) -> None:
    replica = await world.replica()
    client = await world.client(replica)
    kv = await (await world.etcd()).get(world.keys.session(client.session))
    assert kv is not None
    assert f"{kv.lease:016x}" == client.session
    record = decode(Session, kv.value)
    assert client.secret and client.secret not in kv.value.decode()
    assert record.replica == replica.engine.replica_id
    assert record.ttl_ms == 600_000


async def test_a_session_whose_opening_was_written_twice_is_as_good_as_any(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was lost, and the store has gone on before the second try."""
    replica = await world.replica()
    await world.group(replica)
    etcd, once = replica.engine.client, replica.engine.client.txn

    async def again(compares: Sequence[Compare], *more: Any, **options: Any) -> TxnResult:
        result = await once(compares, *more, **options)
        if [one.key.startswith(world.keys.session("")) for one in compares] == [True]:
            await etcd.put(world.keys.root + b"else", b"")
            result = await once(compares, *more, **options)
            assert not result.succeeded
        return result

    monkeypatch.setattr(etcd, "txn", again)
    client = await world.client(replica)
    monkeypatch.undo()
    await client.acquire(1, "a")
    assert (await client.event("granted", "refused")).grants


async def test_two_jobs_take_turns(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    first, second = await world.client(replica), await world.client(replica)
    await first.acquire(1, "a")
    held = await first.event("granted")
    await second.acquire(1, "b")
    queued = await second.event("queued")
    assert (queued.sequence, queued.group, queued.position) == (1, "g", 1)
    await first.give_back(1, "a", held.grants[0].token)
    yielded = await first.event("yielded")
    assert (yielded.waiters, yielded.again) == (1, False)
    granted = await second.event("granted")
    assert granted.grants[0].token > held.grants[0].token

    await first.give_back(1, "a", held.grants[0].token)
    assert (await first.event("yielded")).again
    await first.give_back(1, "a", held.grants[0].token - 1)
    stale = await first.event("refused")
    assert (stale.sequence, stale.reason, stale.code) == (1, "STALE_TOKEN", 9)
    assert state_of(replica, "b") is TicketState.GRANTED


async def test_a_switch_is_told_while_it_lasts(world: World) -> None:
    replica = await world.replica()
    hold = asyncio.Event()

    def answer(directive: Directive) -> Ack | None:
        return None if directive.on == "slow" and not hold.is_set() else obey(directive)

    await world.group(replica, answer=answer)
    client = await world.client(replica)
    await client.acquire(1, "slow")
    switching = await client.event("switching")
    assert (switching.nodes, switching.answered, switching.epoch > 0) == (1, 0, True)


async def test_rule_16_a_beat_is_confirmed_only_by_a_keepalive_of_its_own(world: World) -> None:
    replica = await world.replica()
    client = await world.client(replica)
    before = replica.engine.client.requests["keepalive"]
    assert (await client.beat()).number == 1
    confirmed = await client.beat()
    assert (confirmed.number, confirmed.ttl_ms) == (2, 600_000)
    sent = replica.engine.client.requests
    assert sent["keepalive"] - before == 2, sent


async def test_rule_16_a_replica_never_renews_by_itself(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Expiry, "start", lambda _self: None)  # it is the lease that ends here
    replica = await world.replica()
    await world.group(replica)
    client = Client(await world.stub(replica))
    await client.open(ttl_ms=2_000)
    await client.acquire(1, "a")
    await client.event("granted")
    lost = await client.event("lost")  # the stream is open and quiet: no beat, no lease
    assert (lost.sequence, lost.reason) == (0, "SESSION_EXPIRED")
    assert await client.reason() == "SESSION_EXPIRED"
    assert state_of(replica, "a") is None


async def test_a_beat_of_a_session_that_has_ended_says_so(world: World) -> None:
    replica = await world.replica()
    client = await world.client(replica)
    await replica.engine.view.close()  # the watch does not tell: only etcd's answer to the beat does
    await (await world.etcd()).revoke(int(client.session, 16))
    await client.send(beat=pb.BeatRequest(number=1))
    assert await client.reason() == "SESSION_EXPIRED"
    assert [event.WhichOneof("event") for event in client.past] == ["lost"]


async def test_resume_on_another_replica_finds_held_and_waiting(world: World) -> None:
    one, two = await world.replica(), await world.replica()
    await world.group(one)
    await world.group(one, "h")
    holder, other = await world.client(one), await world.client(one)
    await holder.acquire(1, "a")
    token = (await holder.event("granted")).grants[0].token
    await other.acquire(1, "b", "h")
    other_token = (await other.event("granted")).grants[0].token
    await holder.acquire(2, "a", "h")
    await holder.event("queued")

    moved = Client(await world.stub(two))
    held = [pb.HeldTurn(sequence=1, job="a", group="g", token=token)]
    wanted = [pb.AcquireRequest(sequence=2, job="a", groups=["h"])]
    opened = await moved.resume(holder, held=held, wanted=wanted, last_sequence=2)
    assert opened.resumed and opened.replica == two.engine.replica_id and not opened.secret
    assert await holder.reason() == "SESSION_TAKEN"
    await moved.event("queued")
    await other.give_back(1, "b", other_token, "h")
    assert (await moved.event("granted")).sequence == 2
    await moved.give_back(1, "a", token)
    assert (await moved.event("yielded")).sequence == 1
    assert not [event for event in moved.past if event.WhichOneof("event") in ("lost", "refused")]


async def test_what_is_read_after_another_replica_took_the_session_over_makes_no_ticket(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a replica stood still: the acquire has long been granted and given back elsewhere."""
    monkeypatch.setattr(SessionStream, "_session_over", lambda _self: False)
    one, two = await world.replica(), await world.replica()
    await world.group(one)
    old, moved = await world.client(one), Client(await world.stub(two))
    await moved.resume(old, last_sequence=1)
    await old.acquire(1, "a")
    assert await old.reason() == "SESSION_TAKEN"
    assert await (await world.etcd()).get(world.keys.ticket("g", "a")) is None


async def test_nor_does_it_on_a_view_that_does_not_show_that_yet(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquire, "WITHIN", 0.5)
    one, two = await world.replica(), await world.replica()
    await world.group(one)
    old, moved = await world.client(one), Client(await world.stub(two))
    await one.engine.view.close()
    await moved.resume(old, last_sequence=1)
    await old.acquire(1, "a")
    assert (await old.event("refused")).reason == "REPLICA_BEHIND"
    assert await (await world.etcd()).get(world.keys.ticket("g", "a")) is None


async def test_a_turn_for_which_nothing_moves_is_granted_by_the_answer_of_its_transaction(world: World) -> None:
    """The watch need not have shown it: its guards held, so nobody else has the turn."""
    replica = await world.replica()
    await world.group(replica)
    client = await world.client(replica)
    await client.acquire(1, "a")
    first = (await client.event("granted")).grants[0].token
    await client.give_back(1, "a", first)
    await client.event("yielded")
    await replica.engine.view.reached(replica.engine.floor("g"), 30)
    await replica.engine.view.close()
    await client.acquire(2, "a")
    (grant,) = (await client.event("granted")).grants
    assert grant.token > first


async def test_resume_reports_what_is_lost_and_gives_back_what_is_forgotten(world: World) -> None:
    one, two = await world.replica(), await world.replica()
    await world.group(one)
    await world.group(one, "h")
    client = await world.client(one)
    await client.acquire(1, "a")
    token = (await client.event("granted")).grants[0].token
    await client.acquire(2, "a", "h")
    await client.event("granted")
    moved = Client(await world.stub(two))
    held = [pb.HeldTurn(sequence=1, job="a", group="g", token=token - 1)]
    await moved.resume(client, held=held, last_sequence=2)
    lost = await moved.event("lost")
    assert (lost.sequence, lost.group, lost.reason) == (1, "g", "TURN_LOST")
    await until_seen(two, lambda: state_of(two, "a", "h") is None)


async def test_resume_needs_the_secret_and_a_living_session(world: World) -> None:
    replica = await world.replica()
    client = await world.client(replica)
    thief = await world.client(replica, opened=False)
    await thief.send(resume=pb.ResumeSession(session=client.session, secret="0" * 32))
    assert await thief.reason() == "BAD_SECRET"
    late = await world.client(replica, opened=False)
    await late.send(resume=pb.ResumeSession(session="00000000000000ff", secret=client.secret))
    assert await late.reason() == "SESSION_EXPIRED"
    assert (await client.beat()).number == 1


async def test_a_stream_begins_with_a_greeting(world: World) -> None:
    replica = await world.replica()
    client = await world.client(replica, opened=False)
    await client.send(beat=pb.BeatRequest(number=1))
    assert await client.reason() == "BAD_REQUEST"


async def test_the_same_acquire_again_attaches_to_the_same_ticket(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    client, other = await world.client(replica), await world.client(replica)
    await client.acquire(1, "a")
    first = await client.event("granted")
    await client.acquire(1, "a")
    assert (await client.event("granted")).grants == first.grants
    await other.acquire(1, "a")
    assert (await other.event("refused")).reason == "ALREADY_QUEUED"


async def test_rule_26_who_joins_waits_without_a_place(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    first, joined = await world.client(replica), await world.client(replica)
    await first.acquire(1, "a")
    token = (await first.event("granted")).grants[0].token
    await joined.acquire(1, "a", if_held=pb.IF_HELD_WAIT)
    assert (await joined.event("queued")).position == 0
    await first.give_back(1, "a", token)
    assert (await joined.event("granted")).grants[0].token > token


async def test_a_cancel_ends_a_wait_without_a_place(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    first, joined = await world.client(replica), await world.client(replica)
    await first.acquire(1, "a")
    token = (await first.event("granted")).grants[0].token
    await joined.acquire(1, "a", if_held=pb.IF_HELD_WAIT)
    await joined.event("queued")
    await joined.send(cancel=pb.CancelRequest(sequence=1))
    assert (await joined.event("cancelled")).sequence == 1
    await first.give_back(1, "a", token)
    await first.event("yielded")
    await replica.engine.view.reached(replica.engine.floor("g"), 30)
    assert state_of(replica, "a") is None


async def test_a_cancel_leaves_no_ticket_waiting_granted_or_unknown(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    first, second = await world.client(replica), await world.client(replica)
    await first.acquire(1, "a")
    await first.event("granted")
    await second.acquire(1, "b")
    await second.send(cancel=pb.CancelRequest(sequence=1))  # at once: whatever has become of the acquire
    assert (await second.event("cancelled")).sequence == 1
    await first.send(cancel=pb.CancelRequest(sequence=1))
    await first.event("cancelled")
    await first.send(cancel=pb.CancelRequest(sequence=77))
    assert (await first.event("cancelled")).sequence == 77
    kvs = await (await world.etcd()).get_prefix(world.keys.tickets("g"))
    assert not kvs.kvs


async def test_rule_26_a_beat_prunes_what_is_not_wanted(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    await world.group(replica, "h")
    client = await world.client(replica)
    await client.acquire(1, "a")
    await client.event("granted")
    await client.acquire(2, "a", "h")
    await client.event("granted")
    await client.beat(last_sequence=2, wanted=[1, 2], prune=True)
    await client.beat()  # says nothing of what is wanted
    assert (state_of(replica, "a"), state_of(replica, "a", "h")) == (TicketState.GRANTED, TicketState.GRANTED)
    await client.beat(last_sequence=2, wanted=[2], prune=True)
    await until_seen(replica, lambda: state_of(replica, "a") is None)
    assert state_of(replica, "a", "h") is TicketState.GRANTED


async def test_who_was_refused_may_ask_again_at_once(world: World) -> None:
    """Its refused ticket is there until a beat no longer wants it: that is no other acquire of the job."""
    replica = await world.replica()
    await world.group(replica)
    stub = await world.stub(replica)
    holder, waiter = await world.client(replica), await world.client(replica)
    await holder.acquire(1, "a")
    await holder.event("granted")
    for sequence in (1, 2):
        await waiter.acquire(sequence, "b")
        assert (await waiter.event("queued")).sequence == sequence
        await stub.Evict(pb.EvictRequest(group="g", job="b"))
        assert (await waiter.event("refused")).reason == "EVICTED"
    another = await world.client(replica)
    await another.acquire(1, "b")
    assert (await another.event("refused")).reason == "ALREADY_QUEUED"


async def test_an_evicted_holder_and_an_evicted_waiter_are_told(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    stub = await world.stub(replica)
    holder, waiter = await world.client(replica), await world.client(replica)
    await holder.acquire(1, "a")
    token = (await holder.event("granted")).grants[0].token
    await waiter.acquire(1, "b")
    await waiter.event("queued")
    await stub.Evict(pb.EvictRequest(group="g", job="b"))
    assert (await waiter.event("refused")).reason == "EVICTED"
    assert state_of(replica, "b") is TicketState.REFUSED
    await waiter.beat(last_sequence=1, wanted=[], prune=True)
    await until_seen(replica, lambda: state_of(replica, "b") is None)
    await stub.Evict(pb.EvictRequest(group="g", job="a"))
    lost = await holder.event("lost")
    assert (lost.sequence, lost.token, lost.reason) == (1, token, "EVICTED")
    assert (await holder.beat()).number == 1  # its session lives on


async def test_close_gives_everything_back_cleanly(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    client = await world.client(replica)
    await client.acquire(1, "a")
    token = (await client.event("granted")).grants[0].token
    await client.send(close=pb.CloseRequest())
    await client.event("closed")
    assert await client.reason() == "OK"
    await replica.engine.view.reached(replica.engine.floor("g"), 30)
    turn = replica.engine.picture.turn("g")
    assert turn is not None and turn.value.yielded_token == token
    assert await (await world.etcd()).get(world.keys.session(client.session)) is None


async def test_who_has_given_back_its_turn_sees_so_when_it_looks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a replica has written itself rests, but not from who asks for it."""
    monkeypatch.setattr(ledger.view, "ANSWER_FIRST", 60.0)
    monkeypatch.setattr(ledger.view, "AFTERWARDS", 60.0)
    replica = await world.replica()
    await world.group(replica)
    client, stub = await world.client(replica), await world.stub(replica)
    await client.acquire(1, "a")
    token = (await client.event("granted")).grants[0].token
    await client.give_back(1, "a", token)
    await client.event("yielded")
    async with asyncio.timeout(30):
        while (await stub.GetGroup(pb.GetGroupRequest(name="g"))).turn.yielded_token != token:
            pass  # the watch may not have brought it yet


async def test_what_a_client_has_been_answered_rests_no_longer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger.view, "ANSWER_FIRST", 60.0)
    monkeypatch.setattr(ledger.view, "AFTERWARDS", 60.0)
    replica = await world.replica()
    await world.group(replica)
    client, picture = await world.client(replica), replica.engine.picture
    await client.acquire(1, "a")
    token = (await client.event("granted")).grants[0].token
    await until(lambda: picture.turn("g") is not None and picture.turn("g").value.token == token)
    await client.give_back(1, "a", token)
    await client.event("yielded")
    await until(lambda: picture.turn("g").value.yielded_token == token)


async def test_bad_acquires_are_refused_and_the_stream_goes_on(world: World) -> None:
    replica = await world.replica()
    client = await world.client(replica)
    for request, reason in (
        (pb.AcquireRequest(sequence=1, job="a", groups=["g", "g"]), "BAD_REQUEST"),
        (pb.AcquireRequest(sequence=2, job="A!", groups=["g"]), "BAD_NAME"),
        (pb.AcquireRequest(sequence=3, job="a"), "BAD_REQUEST"),
        (pb.AcquireRequest(sequence=4, job="a", groups=["none"]), "NO_SUCH_GROUP"),
    ):
        await client.send(acquire=request)
        answer = await client.event("refused")
        assert (answer.sequence, answer.reason) == (request.sequence, reason)
    assert (await client.beat()).number == 1


async def test_a_client_that_hangs_up_keeps_its_session_and_place(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    client = await world.client(replica)
    await client.acquire(1, "a")
    token = (await client.event("granted")).grants[0].token
    client.call.cancel()
    again = Client(await world.stub(replica))
    held = [pb.HeldTurn(sequence=1, job="a", group="g", token=token)]
    await again.resume(client, held=held, last_sequence=1)
    await again.give_back(1, "a", token)
    assert not (await again.event("yielded")).again


@pytest.mark.parametrize("ttl_ms", [1, 1_999, 600_001, -5])
async def test_a_ttl_out_of_range_is_refused(world: World, ttl_ms: int) -> None:
    stub = await world.stub(await world.replica())
    assert await refused(stub.OpenSession(pb.OpenRequest(process=PROCESS, ttl_ms=ttl_ms))) == "BAD_REQUEST"


@pytest.mark.parametrize("process", [{"boot_id": "b" * 65}, {"boot_id": ""}, {"pid": 0}, {"start_time": -1}])
async def test_who_names_no_process_has_no_session(world: World, process: dict[str, Any]) -> None:
    # It stands in each ticket and turn of its session: a large one would make a grant that etcd does not take.
    stub = await world.stub(await world.replica())
    named = records_pb2.Process(**{"boot_id": "boot", "pid": 7, "start_time": 70, **process})
    assert await refused(stub.OpenSession(pb.OpenRequest(process=named))) == "BAD_REQUEST"


async def test_without_a_process_no_session_is_opened(world: World) -> None:
    stub = await world.stub(await world.replica())
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stub.OpenSession(pb.OpenRequest())
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_cancel_is_carried_out_after_the_acquire_that_it_takes_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await world.replica()
    await world.group(replica)
    client = await world.client(replica)
    write, gate = replica.engine.write, asyncio.Event()

    async def late(view: GroupView, decision: Decision, deadline: float, guards: Sequence[Compare] = ()) -> int | None:
        if any(isinstance(change, Create) for change in decision.tickets):
            await gate.wait()
        return await write(view, decision, deadline, guards)

    monkeypatch.setattr(replica.engine, "write", late)
    await client.acquire(1, "a")
    await client.send(cancel=pb.CancelRequest(sequence=1))
    await client.beat()
    await client.beat()
    assert not client.past  # no word of the cancel while the acquire is on its way
    gate.set()
    await client.event("cancelled")
    assert not (await (await world.etcd()).get_prefix(world.keys.tickets("g"))).kvs


async def test_a_turn_given_back_by_a_plain_call_is_not_lost_on_the_stream(world: World) -> None:
    replica = await world.replica()
    await world.group(replica)
    client = await world.client(replica)
    await client.acquire(1, "a")
    token = (await client.event("granted")).grants[0].token
    one = pb.YieldRequest(sequence=1, job="a", group="g", token=token)
    call = pb.YieldCall(session=client.session, secret=client.secret, **{"yield": one})
    await (await world.stub(replica)).Yield(call)
    await client.acquire(2, "a")
    await client.event("granted")
    assert not [event for event in client.past if event.WhichOneof("event") == "lost"]


async def test_a_session_that_ended_in_an_outage_is_told_so_by_the_list_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That list comes while the picture is not live yet, and nothing else may come after it."""
    replica = await world.replica()
    await world.group(replica)
    holder, waiter = await world.client(replica), await world.client(replica)
    await holder.acquire(1, "a")
    await holder.event("granted")
    await waiter.acquire(1, "b")
    await waiter.event("queued")
    monkeypatch.setattr(replica.engine.picture, "_is_live", lambda: False)
    etcd = await world.etcd()
    for client in (waiter, holder):
        await etcd.revoke(int(client.session, 16))
        assert (await client.event("lost", "refused")).reason == "SESSION_EXPIRED"
        assert await client.reason() == "SESSION_EXPIRED"
