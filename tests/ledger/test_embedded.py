# SPDX-License-Identifier: Apache-2.0
"""Embedded etcd: real servers that survive kill and freeze with their data, and that nothing survives."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.embedded import EtcdCluster, EtcdDidNotStartError, EtcdTls
from ledger.etcd_server import EtcdUnsoundError
from tests.support.certs import make_certs
from tests.support.etcdctl import enable_auth, etcdctl
from tests.support.processes import wait_gone

Start = Callable[..., EtcdCluster]
ROOT = Path(__file__).resolve().parents[2]


def put(cluster: EtcdCluster, key: str, value: str) -> None:
    etcdctl(cluster.endpoints, "put", key, value)


def get(cluster: EtcdCluster, key: str) -> str:
    return etcdctl(cluster.endpoints, "get", "--print-value-only", key).strip()


def test_data_outlives_kill_and_restart(etcd_cluster: Start) -> None:
    cluster = etcd_cluster(1)
    put(cluster, "k", "v")
    member = cluster.members[0]
    pids = [member.pid]
    cluster.kill(0)
    pids.append(member.pid)
    cluster.restart(0)
    pids.append(member.pid)
    assert pids[1] is None
    assert pids[2] not in (None, pids[0])
    assert get(cluster, "k") == "v"


def test_three_members_elect_another_leader_when_theirs_is_killed(etcd3members: EtcdCluster) -> None:
    cluster = etcd3members
    first = cluster.leader()
    put(cluster, "k", "v")
    cluster.kill(first)
    second = cluster.leader()
    assert second != first
    put(cluster, "k", "w")
    cluster.restart(first)
    assert etcdctl([cluster.endpoints[first]], "get", "--print-value-only", "k").strip() == "w"


def test_a_frozen_leader_is_replaced_and_follows_when_thawed(etcd3members: EtcdCluster) -> None:
    cluster = etcd3members
    frozen = cluster.leader()
    pid = cluster.members[frozen].pid
    cluster.freeze(frozen)
    assert not cluster.members[frozen].healthy()
    with socket.create_connection(("127.0.0.1", int(cluster.endpoints[frozen].split(":")[1])), timeout=10):
        pass  # the kernel still takes connections for it, as a frozen process does
    assert cluster.leader() != frozen
    cluster.thaw(frozen)
    cluster.restart(frozen)  # it runs: this only waits until it is healthy
    assert cluster.members[frozen].pid == pid
    assert cluster.leader() != frozen


def test_without_a_majority_a_member_is_not_healthy(etcd3members: EtcdCluster) -> None:
    cluster = etcd3members
    cluster.kill(0)
    cluster.kill(1)
    cluster.restart(2, wait=False)
    assert not cluster.members[2].healthy()
    cluster.restart(0)
    assert cluster.members[2].healthy() or cluster.members[0].healthy()


def test_stop_leaves_no_process_and_no_data(etcd_cluster: Start) -> None:
    cluster = etcd_cluster(3)
    pids = [member.pid for member in cluster.members]
    folder = cluster.members[0].data.parent
    cluster.freeze(1)
    cluster.stop()
    assert not folder.exists()
    for pid in pids:
        assert pid is not None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    cluster.stop()
    with pytest.raises(ProcessLookupError):
        cluster.freeze(0)


def test_a_kept_folder_keeps_the_data(tmp_path: Path) -> None:
    with EtcdCluster(1, data_dir=tmp_path / "data") as cluster:
        put(cluster, "k", "v")
    with EtcdCluster(1, data_dir=tmp_path / "data") as cluster:
        assert get(cluster, "k") == "v"


def test_a_frozen_server_with_kept_data_is_ended_in_order(tmp_path: Path) -> None:
    with EtcdCluster(1, data_dir=tmp_path / "data") as cluster:
        cluster.freeze(0)
    process = cluster.members[0]._process
    assert process is not None
    assert process.returncode == -signal.SIGTERM, "it was thawed to hear the signal, not killed at the end of the wait"


def test_a_server_that_ends_at_once_is_an_error_with_its_log() -> None:
    cluster = EtcdCluster(3, options=["--no-such-option"])
    with pytest.raises(EtcdDidNotStartError, match=r"ended by itself; the end of its log:\n +\S"):
        cluster.start()
    assert [member.pid for member in cluster.members] == [None] * 3
    assert not cluster.members[0].data.parent.exists()


def test_a_server_that_never_gets_healthy_is_an_error_and_is_ended() -> None:
    # Two members of a cluster whose third nobody starts would do; here one member awaits a peer that is not
    # there.
    cluster = EtcdCluster(1, timeout=2.0)
    member = cluster.members[0]
    absent = f"{member.name}={member.peer_url},absent=http://127.0.0.1:1"
    member.spawn(cluster.binary, absent, ())
    pid = member.pid
    with pytest.raises(EtcdDidNotStartError, match="not healthy in time"):
        cluster.start()
    assert pid is not None
    assert wait_gone(pid)


def test_an_unsound_binary_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "etcd"
    program.write_text("#!/bin/sh\necho 'etcd Version: 3.5.2'\n")
    program.chmod(0o755)
    with pytest.raises(EtcdUnsoundError):
        EtcdCluster(1, binary=program)


def test_servers_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from ledger.embedded import EtcdCluster\n"
        "cluster = EtcdCluster(1, data_dir=Path(sys.argv[1])); cluster.start()\n"
        "print(cluster.members[0].pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.send_signal(signal.SIGKILL)
        assert wait_gone(pid)


def test_servers_outlive_the_thread_that_started_them() -> None:
    cluster = EtcdCluster(1)
    try:
        thread = threading.Thread(target=cluster.start)
        thread.start()
        thread.join(60.0)
        pid = cluster.members[0].pid
        assert pid is not None
        assert not wait_gone(pid, seconds=1.0)
        assert cluster.members[0].healthy()
    finally:
        cluster.stop()


def test_the_environment_cannot_change_a_server(etcd_cluster: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCD_INITIAL_CLUSTER_STATE", "nonsense")
    cluster = etcd_cluster(1)
    assert cluster.members[0].healthy()


def test_tls_with_client_certificates_and_authentication(etcd_cluster: Start, tmp_path: Path) -> None:
    certs = make_certs(tmp_path)
    files = EtcdTls(certs.ca, certs.server_cert, certs.server_key, client_cert_auth=True)
    cluster = etcd_cluster(1, tls=files)
    shown = [f"--cacert={certs.ca}", f"--cert={certs.client_cert}", f"--key={certs.client_key}"]
    etcdctl(cluster.endpoints, "put", "k", "v", options=shown)
    with pytest.raises(AssertionError):
        etcdctl(cluster.endpoints, "get", "k", options=[shown[0], "--command-timeout=2s"])
    assert cluster.leader() == 0


def test_authentication_leaves_health_readable(etcd_cluster: Start) -> None:
    cluster = etcd_cluster(1)
    known = enable_auth(cluster.endpoints, "secret")
    with pytest.raises(AssertionError, match="user name is empty"):
        etcdctl(cluster.endpoints, "get", "k")
    etcdctl(cluster.endpoints, "put", "k", "v", options=known)
    cluster.kill(0)
    cluster.restart(0)
    assert cluster.leader() == 0
