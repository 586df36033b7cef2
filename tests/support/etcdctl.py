# SPDX-License-Identifier: Apache-2.0
"""etcd's own command line as a second opinion in tests: it shares no code with the ledger's client."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ledger.embedded import EtcdCluster
from ledger.etcd_server import find_etcd

_SECONDS = 30


def etcdctl(endpoints: Sequence[str], *arguments: str, options: Sequence[str] = ()) -> str:
    """Run `etcdctl` against these endpoints; what it prints. Raises AssertionError with its own words."""
    command = [
        str(find_etcd().tool("etcdctl")),
        f"--endpoints={','.join(endpoints)}",
        f"--command-timeout={_SECONDS}s",
        *options,
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * _SECONDS, check=False)
    assert done.returncode == 0, f"etcdctl {' '.join(arguments)}: {done.stderr}{done.stdout}"
    return done.stdout


def enable_auth(endpoints: Sequence[str], password: str) -> Sequence[str]:
    """Make a root user and turn authentication on; the options that `etcdctl` needs from then on."""
    etcdctl(endpoints, "user", "add", f"root:{password}")
    etcdctl(endpoints, "user", "grant-role", "root", "root")
    etcdctl(endpoints, "auth", "enable")
    return (f"--user=root:{password}",)


def restore(cluster: EtcdCluster, snapshot: Path, *options: str) -> None:
    """Put a cluster of one member back to a snapshot, as an operator would; `options` go to `etcdutl`."""
    (member,) = cluster.members
    cluster.kill(0)
    shutil.rmtree(member.data)
    command = [
        *(str(find_etcd().tool("etcdutl")), "snapshot", "restore", str(snapshot), "--data-dir", str(member.data)),
        *("--name", member.name, "--initial-cluster", f"{member.name}={member.peer_url}"),
        *("--initial-advertise-peer-urls", member.peer_url, *options),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * _SECONDS, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}{done.stdout}"
    cluster.restart(0)
