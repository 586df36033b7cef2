# SPDX-License-Identifier: Apache-2.0
"""An etcd in a container, through testcontainers. Its image is made of the binary that is here, without a registry."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from ledger.etcd_server import EtcdBinary, EtcdNotFoundError, find_etcd

OFFICIAL_IMAGE = "quay.io/coreos/etcd:v3.5.21"
_PROGRAM = "/usr/local/bin/etcd"
_CLIENT_PORT = 2379
_IMPORT_SECONDS = 120.0
_START_SECONDS = 60.0
_PROBE_SECONDS = 5.0


def engine_answers() -> bool:
    """True if there is a Docker client here whose engine answers."""
    if shutil.which("docker") is None:
        return False
    done = subprocess.run(
        ["docker", "version", "--format", "{{.Server.Version}}"],
        capture_output=True,
        timeout=_PROBE_SECONDS,
        check=False,
    )
    return done.returncode == 0


def _shared_objects(program: Path) -> list[Path]:
    """The loader and the libraries that a dynamic program names (ldd); none for a static one."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False)
    return [Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+)", done.stdout, re.MULTILINE)]


def import_image(binary: EtcdBinary) -> str:
    """An image of the etcd binary and the libraries that it loads, and nothing else; its tag. Needs no registry."""
    tag = f"timeslice-test-etcd:{binary.version}"
    filesystem = io.BytesIO()
    with tarfile.open(fileobj=filesystem, mode="w") as tar:
        for path in _shared_objects(binary.path):
            tar.add(path.resolve(), arcname=str(path))
        tar.add(binary.path, arcname=_PROGRAM)
    subprocess.run(
        ["docker", "import", "-", tag],
        input=filesystem.getvalue(),
        stdout=subprocess.DEVNULL,
        timeout=_IMPORT_SECONDS,
        check=True,
    )
    return tag


def image() -> str:
    """The image to run: made from the binary that is here, else etcd's own of a sound version."""
    try:
        return import_image(find_etcd())
    except EtcdNotFoundError:
        return OFFICIAL_IMAGE


def _wait_healthy(endpoint: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://{endpoint}/health", timeout=1.0) as answer:
                if b'"health":"true"' in answer.read():
                    return
        except (OSError, urllib.error.URLError):
            pass
        if time.monotonic() >= deadline:
            raise TimeoutError(f"etcd in a container at {endpoint} was not healthy in {_START_SECONDS:g} s")
        time.sleep(0.05)


@contextlib.contextmanager
def etcd_container() -> Iterator[str]:
    """`host:port` of an etcd in a container that ends with this context."""
    # The reaper is an image from a registry; the `with` below ends the container instead.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    from testcontainers.core.container import DockerContainer

    url = f"http://0.0.0.0:{_CLIENT_PORT}"
    container = (
        DockerContainer(image())
        .with_exposed_ports(_CLIENT_PORT)
        .with_command(
            f"{_PROGRAM} --data-dir /data --unsafe-no-fsync --listen-client-urls {url} --advertise-client-urls {url}"
            " --heartbeat-interval 20 --election-timeout 200"
        )
    )
    with container:
        endpoint = f"{container.get_container_host_ip()}:{container.get_exposed_port(_CLIENT_PORT)}"
        _wait_healthy(endpoint)
        yield endpoint
