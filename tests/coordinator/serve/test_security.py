# SPDX-License-Identifier: Apache-2.0
"""Certificates and tokens of a replica, which change under it while it serves."""

from __future__ import annotations

import shutil
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from coordinator.decide.commands import Refusal
from coordinator.serve.security import ServerTls, Tokens
from tests.coordinator.serve.world import World, reason_of
from tests.support.certs import Certs, make_certs
from timeslice_proto.v1 import coordinator_pb2 as pb
from timeslice_proto.v1 import coordinator_pb2_grpc

LIST = pb.ListGroupsRequest()


def certs_in(folder: Path) -> Certs:
    folder.mkdir()
    return make_certs(folder)


@pytest.fixture
def old(tmp_path: Path) -> Certs:
    return certs_in(tmp_path / "old")


@pytest.fixture
def new(tmp_path: Path) -> Certs:
    return certs_in(tmp_path / "new")


@pytest.fixture
def tls(tmp_path: Path, old: Certs) -> ServerTls:
    """What the replica reads: copies of the old files, to be replaced."""
    (tmp_path / "live").mkdir()
    live = ServerTls(tmp_path / "live" / "cert.pem", tmp_path / "live" / "key.pem")
    replace(old.server_cert, live.cert_file)
    replace(old.server_key, live.key_file)
    return live


def replace(source: Path, target: Path) -> None:
    """As a rotation does it: at no moment is the target half written."""
    shutil.copy(source, target.with_suffix(".next"))
    target.with_suffix(".next").replace(target)


def channel_to(address: str, ca: Path, token: str = "") -> grpc.aio.Channel:
    credentials = grpc.ssl_channel_credentials(ca.read_bytes())
    if token:
        credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(token))
    # A connection of its own, with a handshake of its own.
    return grpc.aio.secure_channel(address, credentials, options=(("grpc.use_local_subchannel_pool", 1),))


async def answers(address: str, ca: Path) -> bool:
    """Whether a new connection comes about that trusts this authority alone."""
    async with channel_to(address, ca) as channel:
        try:
            await coordinator_pb2_grpc.CoordinatorStub(channel).ListGroups(LIST, timeout=30)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False
        return True


async def reason(address: str, ca: Path, token: str = "") -> str:
    """By which a call with this token is refused; empty if it is served."""
    async with channel_to(address, ca, token) as channel:
        try:
            await coordinator_pb2_grpc.CoordinatorStub(channel).ListGroups(LIST, timeout=30)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAUTHENTICATED:
                raise
            return reason_of(error)
        return ""


async def test_a_replaced_certificate_is_shown_from_the_next_handshake_on(
    world: World, tls: ServerTls, old: Certs, new: Certs
) -> None:
    replica = await world.replica(tls=tls)
    async with channel_to(replica.address, old.ca) as before:
        await coordinator_pb2_grpc.CoordinatorStub(before).ListGroups(LIST, timeout=30)
        assert not await answers(replica.address, new.ca)

        replace(new.server_key, tls.key_file)
        replace(new.server_cert, tls.cert_file)

        assert await answers(replica.address, new.ca)
        assert not await answers(replica.address, old.ca)
        # A connection that was open goes on.
        await coordinator_pb2_grpc.CoordinatorStub(before).ListGroups(LIST, timeout=30)


async def test_half_a_rotation_changes_nothing(world: World, tls: ServerTls, old: Certs, new: Certs) -> None:
    replica = await world.replica(tls=tls)
    replace(new.server_cert, tls.cert_file)  # its key is still to come
    assert await answers(replica.address, old.ca)
    tls.key_file.unlink()
    assert await answers(replica.address, old.ca)
    replace(new.server_key, tls.key_file)
    assert await answers(replica.address, new.ca)


async def test_who_has_no_token_is_not_let_in(world: World, tls: ServerTls, old: Certs, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("first\n")
    replica = await world.replica(tls=tls, token_file=tokens)

    assert await reason(replica.address, old.ca) == "UNAUTHENTICATED"
    assert await reason(replica.address, old.ca, "other") == "UNAUTHENTICATED"
    assert await reason(replica.address, old.ca, "first") == ""

    tokens.write_text("first\nsecond\n")
    assert await reason(replica.address, old.ca, "first") == ""
    assert await reason(replica.address, old.ca, "second") == ""
    tokens.unlink()
    assert await reason(replica.address, old.ca, "second") == ""
    tokens.write_text("second\n")
    assert await reason(replica.address, old.ca, "first") == "UNAUTHENTICATED"


async def test_a_stream_without_a_token_is_refused_and_health_may_be_asked(
    world: World, tls: ServerTls, old: Certs, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("first\n")
    replica = await world.replica(tls=tls, token_file=tokens)
    async with channel_to(replica.address, old.ca) as channel:
        stream = coordinator_pb2_grpc.CoordinatorStub(channel).Session(timeout=30)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
        assert reason_of(refused.value) == "UNAUTHENTICATED"
        # A probe has no token; it would fail here if it were asked for one.
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)


@pytest.mark.parametrize(
    "header", [None, "", "first", "Basic first", "Bearer", "Bearer ", "Bearer firs", "Bearer f\xfc"]
)
def test_a_header_that_has_no_token_of_the_file(tmp_path: Path, header: str | None) -> None:
    path = tmp_path / "tokens"
    path.write_text("\n first \n\nsecond")
    tokens = Tokens(path)
    tokens.check("Bearer first")
    tokens.check("bearer second")
    with pytest.raises(Refusal) as refused:
        tokens.check(header)
    assert refused.value.reason == "UNAUTHENTICATED"


def test_a_file_without_tokens_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("\n")
    with pytest.raises(ValueError, match="no token"):
        Tokens(path)
    path.write_text("first")
    tokens = Tokens(path)
    path.write_text("")
    with pytest.raises(Refusal):
        tokens.check("Bearer ")
