# SPDX-License-Identifier: Apache-2.0
"""The client over TLS, with files that are replaced while it holds a turn."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import tsclient as ts
from coordinator.serve.security import ServerTls
from tests.coordinator.serve.world import World
from tests.support.certs import Certs, make_certs
from tests.support.etcd_source import TestEtcd
from tests.support.proxy import Proxy
from tsclient import settings
from tsclient.cli import main as command
from tsclient.cli.exits import Exit

off_loop = asyncio.to_thread


@pytest.fixture
async def world(etcd: TestEtcd, prefix: bytes) -> AsyncIterator[World]:
    async with contextlib.AsyncExitStack() as stack:
        yield World(etcd.endpoints, prefix.decode(), stack)


def certs_in(folder: Path) -> Certs:
    folder.mkdir()
    return make_certs(folder)


def live_copy(certs: Certs, folder: Path) -> tuple[ServerTls, ts.Tls]:
    """Files of a server and a client that know each other, to be replaced by another such copy."""
    folder.mkdir(exist_ok=True)
    for source in (certs.ca, certs.server_cert, certs.server_key, certs.client_cert, certs.client_key):
        (folder / "next").write_bytes(source.read_bytes())
        (folder / "next").replace(folder / source.name)
    ca = folder / certs.ca.name
    return (
        ServerTls(folder / certs.server_cert.name, folder / certs.server_key.name, ca),
        ts.Tls(ca, folder / certs.client_cert.name, folder / certs.client_key.name, folder / "token"),
    )


async def test_a_holder_outlives_new_certificates_and_a_new_token(world: World, tmp_path: Path) -> None:
    live, tokens = tmp_path / "live", tmp_path / "tokens"
    of_server, of_client = live_copy(certs_in(tmp_path / "old"), live)
    tokens.write_text("first\n")
    (live / "token").write_text("first\n")
    replica = await world.replica(tls=of_server, token_file=tokens)
    # With certificates asked for, and the world's own channels in plain text, another replica makes the group.
    await world.group(await world.replica())
    async with Proxy(replica.address) as proxy:
        client = await off_loop(lambda: ts.connect(proxy.endpoint, "a", 30, tls=of_client))
        turn = await off_loop(client.acquire, "g", timeout=30)

        live_copy(certs_in(tmp_path / "new"), live)
        tokens.write_text("second\n")
        (live / "token").write_text("second\n")
        proxy.cut()

        # It is confirmed by the replica, over a connection that only the new files can have made.
        assert await off_loop(turn.yield_) == 0
        assert await off_loop(client.close)


async def test_a_token_that_is_not_known_is_said(world: World, tmp_path: Path) -> None:
    of_server, of_client = live_copy(certs_in(tmp_path / "certs"), tmp_path / "live")
    (tmp_path / "tokens").write_text("first\n")
    assert of_client.token is not None
    of_client.token.write_text("other\n")
    replica = await world.replica(tls=of_server, token_file=tmp_path / "tokens")
    with pytest.raises(ts.TimesliceError, match="token") as refused:
        await off_loop(lambda: ts.connect(replica.address, "a", 30, tls=of_client, connect_timeout=2))
    assert "UNAUTHENTICATED" in (refused.value.code, getattr(refused.value.__cause__, "code", ""))


async def test_the_command_line_takes_them_from_the_environment(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of_server, of_client = live_copy(certs_in(tmp_path / "certs"), tmp_path / "live")
    (tmp_path / "tokens").write_text("first\n")
    replica = await world.replica(tls=of_server, token_file=tmp_path / "tokens")
    monkeypatch.setenv("TIMESLICE_ENDPOINTS", replica.address)
    for name, path in (("CA", of_client.ca), ("CERT", of_client.cert), ("KEY", of_client.key)):
        monkeypatch.setenv(f"TIMESLICE_TLS_{name}", str(path))
    assert await off_loop(command.main, ["get", "groups"]) == Exit.FAILED
    assert "TIMESLICE_TOKEN_FILE" in capsys.readouterr().err
    assert of_client.token is not None
    shutil.copy(tmp_path / "tokens", of_client.token)
    monkeypatch.setenv("TIMESLICE_TOKEN_FILE", str(of_client.token))
    assert await off_loop(command.main, ["get", "groups"]) == Exit.DONE


def test_a_token_is_never_sent_in_plain_text() -> None:
    env = {"TIMESLICE_ENDPOINTS": "a:1", "TIMESLICE_TOKEN_FILE": "/token"}
    with pytest.raises(ts.BadRequest, match="TIMESLICE_TLS_CA"):
        settings.load(environ=env)
