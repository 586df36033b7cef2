# SPDX-License-Identifier: Apache-2.0
"""TLS, client certificates, logins and their tokens."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from ledger.embedded import EtcdTls
from ledger.etcd import EtcdClient, Security
from ledger.etcd.errors import AuthFailed, PermissionDenied, Unavailable
from tests.support.certs import make_certs
from tests.support.etcdctl import enable_auth, etcdctl
from tests.support.proxy import Proxy

ROOT = Security(user="root", password="secret")
DEADLINE = 30.0


def make_key_pair(folder: Path) -> tuple[Path, Path]:
    private, public = folder / "jwt.key", folder / "jwt.pub"
    for arguments in (("genrsa", "-out", private, "2048"), ("rsa", "-in", private, "-pubout", "-out", public)):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=DEADLINE)
    return private, public


async def next_value(watch) -> bytes:
    async with asyncio.timeout(DEADLINE):
        while True:
            batch = await anext(watch)
            if batch.events:
                return batch.events[0].kv.value


async def test_client_certificates(etcd_cluster, connect, tmp_path: Path) -> None:
    certs = make_certs(tmp_path)
    cluster = etcd_cluster(tls=EtcdTls(certs.ca, certs.server_cert, certs.server_key, client_cert_auth=True))
    full = Security(ca_file=certs.ca, cert_file=certs.client_cert, key_file=certs.client_key)
    for endpoint in (cluster.endpoints[0], f"https://{cluster.endpoints[0]}"):
        client: EtcdClient = connect(endpoint, security=full)
        async with client.watch(b"a") as watch:
            await client.put(b"a", b"1")
            assert await next_value(watch) == b"1"
        async with await client.lease(60) as lease:
            assert (await client.beat(lease.lease_id)).ttl == 60

    (tmp_path / "other").mkdir()
    other = make_certs(tmp_path / "other")
    for refused in (
        Security(ca_file=certs.ca),
        Security(ca_file=other.ca, cert_file=certs.client_cert, key_file=certs.client_key),
        Security(ca_file=certs.ca, cert_file=other.client_cert, key_file=other.client_key),
    ):
        with pytest.raises(Unavailable):
            await connect(cluster.endpoints[0], security=refused, timeout=1).get(b"a")


def test_half_a_pair_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="key"):
        Security(cert_file=tmp_path / "cert")
    with pytest.raises(ValueError, match="password"):
        Security(user="root")
    with pytest.raises(ValueError, match="without TLS"):
        EtcdClient(["http://127.0.0.1:2379"], security=Security(ca_file=tmp_path / "ca"))
    with pytest.raises(FileNotFoundError):
        EtcdClient(["127.0.0.1:2379"], security=Security(ca_file=tmp_path / "ca"))
    assert "secret" not in repr(ROOT)


async def test_a_login_is_made_once_for_all(etcd_cluster, connect) -> None:
    cluster = etcd_cluster()
    enable_auth(cluster.endpoints, "secret")
    client: EtcdClient = connect(*cluster.endpoints, security=ROOT)
    await asyncio.gather(*(client.put(b"%d" % number, b"") for number in range(50)))
    assert client.requests["authenticate"] == 1
    with pytest.raises(AuthFailed, match="authentication failed"):
        await connect(*cluster.endpoints, security=Security(user="root", password="wrong")).get(b"a")
    nobody: EtcdClient = connect(*cluster.endpoints)
    with pytest.raises(AuthFailed, match="user name is empty"):
        await nobody.get(b"a")
    with pytest.raises(AuthFailed):
        async with nobody.watch(b"a") as watch:
            await anext(watch)


async def test_a_user_may_be_given_before_authentication_is_on(etcd_cluster, connect) -> None:
    cluster = etcd_cluster()
    client: EtcdClient = connect(*cluster.endpoints, security=ROOT)
    async with client.watch(b"a") as watch, await client.lease(60) as lease:
        await client.put(b"a", b"before")
        assert await next_value(watch) == b"before"
        enable_auth(cluster.endpoints, "secret")
        await client.put(b"a", b"after")
        assert await next_value(watch) == b"after"
        assert (await client.beat(lease.lease_id)).ttl == 60


@pytest.mark.slow
async def test_an_expired_token_is_renewed(etcd_cluster, connect) -> None:
    cluster = etcd_cluster(options=("--auth-token-ttl", "1"))
    enable_auth(cluster.endpoints, "secret")
    async with Proxy(cluster.endpoints[0]) as proxy:
        client: EtcdClient = connect(*cluster.endpoints, security=ROOT)
        through: EtcdClient = connect(proxy.endpoint, security=ROOT, timeout=20)
        async with through.watch(b"a") as watch, await through.lease(60) as lease:
            await client.put(b"a", b"1")
            assert await next_value(watch) == b"1"
            await through.beat(lease.lease_id)
            # Only time can expire a token, and nothing tells when it has: asking would renew it.
            await asyncio.sleep(4)
            proxy.cut()
            await client.put(b"a", b"2")
            logins = client.requests["authenticate"]  # more than two where a second has passed in between
            assert logins >= 2
            assert client.requests == {"authenticate": logins, "put": logins + 1}, "each refusal costs one of both"
            assert await next_value(watch) == b"2"
            assert (await through.beat(lease.lease_id)).ttl == 60
            assert through.requests["authenticate"] >= 2


async def test_a_token_of_an_older_store_of_users_is_renewed(etcd_cluster, connect, tmp_path: Path) -> None:
    """Signed tokens carry the revision of the users: any change there makes them old."""
    private, public = make_key_pair(tmp_path)
    token = f"jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=10m"
    cluster = etcd_cluster(options=("--auth-token", token))
    options = enable_auth(cluster.endpoints, "secret")
    async with Proxy(cluster.endpoints[0]) as proxy:
        client: EtcdClient = connect(proxy.endpoint, security=ROOT)
        async with client.watch(b"a") as watch:
            await client.put(b"a", b"1")
            assert await next_value(watch) == b"1"
            assert client.requests["authenticate"] == 1
            etcdctl(cluster.endpoints, "user", "add", "somebody:password", options=options)
            await client.put(b"a", b"2")
            assert client.requests["authenticate"] == 2
            assert await next_value(watch) == b"2"
            etcdctl(cluster.endpoints, "user", "delete", "somebody", options=options)
            proxy.cut()
            await asyncio.to_thread(etcdctl, cluster.endpoints, "put", "a", "3", options=options)
            assert await next_value(watch) == b"3"
            assert client.requests["authenticate"] == 3


async def test_what_a_role_does_not_allow(etcd_cluster, connect) -> None:
    cluster = etcd_cluster()
    options = enable_auth(cluster.endpoints, "secret")
    for command in (
        ("role", "add", "agent"),
        ("role", "grant-permission", "agent", "readwrite", "nodes/a/", "--prefix"),
        ("user", "add", "agent:password"),
        ("user", "grant-role", "agent", "agent"),
    ):
        etcdctl(cluster.endpoints, *command, options=options)
    client: EtcdClient = connect(*cluster.endpoints, security=Security(user="agent", password="password"))
    async with client.watch(b"nodes/a/") as watch:
        await client.put(b"nodes/a/x", b"1")
        assert await next_value(watch) == b"1"
    with pytest.raises(PermissionDenied):
        await client.put(b"nodes/b/x", b"1")
    with pytest.raises(PermissionDenied):
        async with client.watch(b"nodes/b/") as watch:
            await anext(watch)
