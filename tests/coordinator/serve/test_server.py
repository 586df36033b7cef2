# SPDX-License-Identifier: Apache-2.0
"""A replica as a whole: health, drain, TLS, an etcd that fails, faults of its own, and the command."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from coordinator.apply.errors import EngineUnavailable
from coordinator.command import main
from coordinator.decide import Decision, GroupView
from coordinator.serve import look, registration
from coordinator.serve.security import ServerTls
from coordinator.serve.server import SERVICE, CoordinatorServer, PortInUse, Settings
from ledger.codec import decode
from ledger.embedded import EtcdCluster
from ledger.etcd.txn import Compare
from ledger.records import Replica, Ticket, TicketState, Turn
from tests.coordinator.serve.process import CoordinatorProcess
from tests.coordinator.serve.world import PROCESS, Client, World, reason_of, refused, state_of, until_seen
from tests.support.certs import make_certs
from tests.support.until import until
from timeslice_proto.v1 import coordinator_pb2 as pb
from timeslice_proto.v1 import coordinator_pb2_grpc

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def test_a_registration_that_was_deleted_is_made_again(world: World) -> None:
    # Without it the others hold the replica for gone, and end its clients' sessions for as long as it runs.
    replica = await world.replica()
    etcd, key = await world.etcd(), world.keys.replica(replica.engine.replica_id)
    before = await etcd.get(key)
    await etcd.delete(key)
    await until_seen(replica, lambda: replica.engine.replica_id not in replica.engine.picture.replicas())
    await until_seen(replica, lambda: replica.engine.replica_id in replica.engine.picture.replicas())
    after = await etcd.get(key)
    assert before is not None and after is not None and (after.value, after.lease) == (before.value, before.lease)


async def test_of_two_replicas_with_one_name_the_second_does_not_serve(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each would end the sessions of the other's clients, whose beats it does not hear.
    monkeypatch.setattr(registration, "_OTHERS_END", 1.0)
    first = await world.replica(replica_id="r0")
    with pytest.raises(registration.ReplicaIdTaken, match=first.address):
        await world.replica(replica_id="r0")
    etcd = await world.etcd()
    kv = await etcd.get(world.keys.replica("r0"))
    assert kv is not None and decode(Replica, kv.value).address == first.address


async def test_a_drained_replica_sends_its_clients_away_with_their_places(world: World) -> None:
    staying = await world.replica()
    await world.group(staying)
    leaving = CoordinatorServer(Settings(world.endpoints, "127.0.0.1:0", prefix=world.prefix))
    await leaving.start()
    key = world.keys.replica(leaving.engine.replica_id)
    kv = await (await world.etcd()).get(key)
    assert kv is not None and decode(Replica, kv.value).address == leaving.address
    holder, waiter = await world.client(leaving), await world.client(leaving)
    await holder.acquire(1, "a")
    token = (await holder.event("granted")).grants[0].token
    await waiter.acquire(1, "b")
    await waiter.event("queued")
    stub = await world.stub(leaving)
    plain = await stub.OpenSession(pb.OpenRequest(process=PROCESS, ttl_ms=600_000))
    third = pb.AcquireRequest(sequence=1, job="c", groups=["g"])
    call = pb.AcquireCall(session=plain.session, secret=plain.secret, acquire=third)
    blocked = asyncio.ensure_future(stub.Acquire(call))
    await until_seen(staying, lambda: state_of(staying, "c") is TicketState.WAITING)
    places = [one.create for one in staying.engine.picture.queue("g").in_order()]

    await leaving.stop()
    assert await refused(blocked) == "REPLICA_LEAVING"
    for client in (holder, waiter):
        assert await client.reason() == "REPLICA_LEAVING"
        assert client.past[-1].WhichOneof("event") == "go_away"
    assert await (await world.etcd()).get(key) is None

    moved, moved_waiter = Client(await world.stub(staying)), Client(await world.stub(staying))
    await moved.resume(holder, held=[pb.HeldTurn(sequence=1, job="a", group="g", token=token)], last_sequence=1)
    again = [pb.AcquireRequest(sequence=1, job="b", groups=["g"])]
    await moved_waiter.resume(waiter, wanted=again, last_sequence=1)
    found = asyncio.ensure_future((await world.stub(staying)).Acquire(call))
    assert [one.create for one in staying.engine.picture.queue("g").in_order()] == places
    await moved.give_back(1, "a", token)
    granted = await moved_waiter.event("granted")
    await moved_waiter.give_back(1, "b", granted.grants[0].token)
    assert (await found).grants[0].token > granted.grants[0].token


async def test_a_replica_that_leaves_finishes_what_it_is_writing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    staying = await world.replica()
    await world.group(staying)
    leaving = CoordinatorServer(Settings(world.endpoints, "127.0.0.1:0", prefix=world.prefix))
    await leaving.start()
    client = await world.client(leaving)
    await client.acquire(1, "a")
    token = (await client.event("granted")).grants[0].token
    write, writing, gate = leaving.engine.write, asyncio.Event(), asyncio.Event()

    async def late(view: GroupView, decision: Decision, deadline: float, guards: Sequence[Compare] = ()) -> int | None:
        writing.set()
        await gate.wait()
        return await write(view, decision, deadline, guards)

    monkeypatch.setattr(leaving.engine, "write", late)
    await client.give_back(1, "a", token)
    await writing.wait()
    stopping = asyncio.ensure_future(leaving.stop())
    assert await client.reason() == "REPLICA_LEAVING"
    await asyncio.wait({stopping}, timeout=1.0)
    assert not stopping.done()  # it waits for the write, and is registered until then
    gate.set()
    await stopping
    kv = await (await world.etcd()).get(world.keys.turn("g"))
    assert kv is not None and decode(Turn, kv.value).yielded_token == token


async def test_health_follows_the_view_and_methods_are_reflected(world: World) -> None:
    replica = await world.replica()
    async with grpc.aio.insecure_channel(replica.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        async with asyncio.timeout(30):
            watch = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
            while (await watch.read()).status != SERVING:
                pass
            await replica.engine.view.close()
            while (await watch.read()).status != NOT_SERVING:
                pass
        watch.cancel()
        listing = reflection_pb2.ServerReflectionRequest(list_services="")
        answers = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([listing]))
        answer = await answers.read()
        assert SERVICE in {one.name for one in answer.list_services_response.service}
        answers.cancel()
        stub = await world.stub(replica)
        assert await refused(stub.ListGroups(pb.ListGroupsRequest())) == "REPLICA_BEHIND"


async def test_an_etcd_that_does_not_answer_is_named_within_a_deadline(
    etcd_cluster: Callable[..., EtcdCluster], prefix: bytes
) -> None:
    cluster = etcd_cluster(1)
    async with contextlib.AsyncExitStack() as stack:
        world = World(cluster.endpoints, prefix.decode(), stack)
        replica = await world.replica()
        await world.group(replica)
        stub, client = await world.stub(replica), await world.client(replica, opened=False)
        await client.open()
        await client.acquire(1, "a")
        await client.give_back(1, "a", (await client.event("granted")).grants[0].token)
        await client.event("yielded")  # it stays resident: its next turn needs no agent
        cluster.freeze(0)
        try:
            request = pb.OpenRequest(process=PROCESS)
            assert await refused(stub.OpenSession(request, timeout=30)) == "STORE_UNAVAILABLE"
            await client.acquire(2, "a")
            assert (await client.event("refused")).reason in ("STORE_UNAVAILABLE", "REPLICA_BEHIND")
            await client.send(beat=pb.BeatRequest(number=1))
            assert await client.reason() == "STORE_UNAVAILABLE"  # unanswered: the client goes to another replica
        finally:
            cluster.thaw(0)
        again = Client(stub)
        wanted = [pb.AcquireRequest(sequence=2, job="a", groups=["g"])]
        await again.resume(client, wanted=wanted, last_sequence=2)
        assert (await again.event("granted")).sequence == 2


async def test_without_etcd_a_replica_does_not_start(etcd_cluster: Callable[..., EtcdCluster]) -> None:
    cluster = etcd_cluster(1)
    cluster.kill(0)
    with pytest.raises(EngineUnavailable):
        await CoordinatorServer(Settings(cluster.endpoints, "127.0.0.1:0")).start()


async def test_a_fault_of_the_service_is_logged_and_not_shown(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stub = await world.stub(await world.replica())

    def broken(_picture: object) -> None:
        raise KeyError("a secret of the inside")

    monkeypatch.setattr(look, "groups", broken)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stub.ListGroups(pb.ListGroupsRequest())
    assert (error.value.code(), reason_of(error.value)) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert "secret" not in str(error.value)
    assert "a secret of the inside" in caplog.text


async def test_a_second_replica_on_the_same_port_is_refused(world: World) -> None:
    replica = await world.replica()
    with pytest.raises(PortInUse):
        await CoordinatorServer(Settings(world.endpoints, replica.address, prefix=world.prefix)).start()


async def test_tls_asks_for_client_certificates(world: World, tmp_path: Path) -> None:
    certs = make_certs(tmp_path)
    replica = await world.replica(tls=ServerTls(certs.server_cert, certs.server_key, certs.ca))
    authority = certs.ca.read_bytes()
    shown = grpc.ssl_channel_credentials(authority, certs.client_key.read_bytes(), certs.client_cert.read_bytes())
    async with grpc.aio.secure_channel(replica.address, shown) as channel:
        await coordinator_pb2_grpc.CoordinatorStub(channel).ListGroups(pb.ListGroupsRequest())
    async with grpc.aio.secure_channel(replica.address, grpc.ssl_channel_credentials(authority)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await coordinator_pb2_grpc.CoordinatorStub(channel).ListGroups(pb.ListGroupsRequest(), timeout=30)
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


async def test_a_call_has_a_span_in_its_clients_trace(world: World, spans: InMemorySpanExporter) -> None:
    stub = await world.stub(await world.replica())
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.GetGroup(pb.GetGroupRequest(name="none"), metadata=(("traceparent", parent),))
    # The span ends after the answer has gone out.
    await until(lambda: any(one.name.endswith("GetGroup") for one in spans.get_finished_spans()))
    (span,) = [one for one in spans.get_finished_spans() if one.name.endswith("GetGroup")]
    assert f"{span.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert span.attributes is not None and span.attributes["timeslice.reason"] == "NO_SUCH_GROUP"


async def test_the_trace_of_an_acquire_goes_into_its_ticket(world: World, spans: InMemorySpanExporter) -> None:
    replica = await world.replica()
    await world.group(replica)
    stub, client = await world.stub(replica), await world.client(replica)
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await client.acquire(1, "a", traceparent=own)
    await client.event("granted")
    session = await stub.OpenSession(pb.OpenRequest(process=PROCESS, ttl_ms=600_000))
    acquire = pb.AcquireRequest(sequence=1, job="b", groups=["g"])
    call = stub.Acquire(
        pb.AcquireCall(session=session.session, secret=session.secret, acquire=acquire),
        metadata=(("traceparent", own),),
    )
    await until_seen(replica, lambda: state_of(replica, "b") is TicketState.WAITING)
    etcd = await world.etcd()
    for job, traceparent in (("a", own), ("b", own[:36])):
        kv = await etcd.get(world.keys.ticket("g", job))
        assert kv is not None and decode(Ticket, kv.value).traceparent.startswith(traceparent)
    call.cancel()


@pytest.fixture
def child(world: World, coordinator_process: Callable[..., CoordinatorProcess]) -> Callable[..., CoordinatorProcess]:
    return partial(coordinator_process, world.endpoints, world.prefix)


async def test_the_command_serves_and_ends_in_order(world: World, child: Callable[..., CoordinatorProcess]) -> None:
    staying = await world.replica()
    await world.group(staying)
    one = await asyncio.to_thread(child, "--replica-id", "r-one")
    assert one.line == f"coordinator r-one serves on {one.address}\n"
    async with grpc.aio.insecure_channel(one.address) as channel:
        client = Client(coordinator_pb2_grpc.CoordinatorStub(channel))  # type: ignore[arg-type]
        await client.open()
        await client.acquire(1, "a")
        await client.event("granted")
        assert await asyncio.to_thread(one.end, signal.SIGTERM) == 0
        assert await client.reason() == "REPLICA_LEAVING"
    assert await (await world.etcd()).get(world.keys.replica("r-one")) is None


async def test_a_killed_replica_loses_no_place_and_no_turn(
    world: World, child: Callable[..., CoordinatorProcess]
) -> None:
    staying = await world.replica()
    await world.group(staying)
    one = await asyncio.to_thread(child)
    async with grpc.aio.insecure_channel(one.address) as channel:
        client = Client(coordinator_pb2_grpc.CoordinatorStub(channel))  # type: ignore[arg-type]
        await client.open()
        await client.acquire(1, "a")
        token = (await client.event("granted")).grants[0].token
        one.process.kill()
        moved = Client(await world.stub(staying))
        await moved.resume(client, held=[pb.HeldTurn(sequence=1, job="a", group="g", token=token)], last_sequence=1)
        assert (await moved.beat(last_sequence=1, wanted=[1], prune=True)).ttl_ms == 600_000
        await moved.give_back(1, "a", token)
        assert not (await moved.event("yielded")).again


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tls-cert", "x"], "--tls-cert and --tls-key"),
        (["--etcd-user", "u"], "password"),
        (["--etcd", "nonsense"], "no endpoint"),
        (["--etcd", "127.0.0.1:1,"], "no endpoint"),
        (["--prefix", "x"], "slash"),
        (["--replica-id", "R!"], "no name"),
        (["--etcd-password-file", "/does/not/exist"], "No such file"),
    ],
)
def test_wrong_arguments_are_said_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIMESLICE_ETCD_PASSWORD", raising=False)
    assert main(["--etcd", "127.0.0.1:1", *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
