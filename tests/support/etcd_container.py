# SPDX-License-Identifier: Apache-2.0
"""An etcd in a container, through testcontainers. Its image is built here, so that no registry is needed."""

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

from ledger.etcd_server import find_etcd

IMAGE = "timeslice-test-etcd"
_CLIENT_PORT = 2379
_BUILD_SECONDS = 120.0
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


def build_image() -> str:
    """Build an image `FROM scratch` with the etcd binary and the libraries that it loads; its tag."""
    binary = find_etcd()
    tag = f"{IMAGE}:{binary.version}"
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for path in _shared_objects(binary.path):
            tar.add(path.resolve(), arcname=f"root{path}")
        tar.add(binary.path, arcname="root/etcd")
        text = b'FROM scratch\nCOPY root/ /\nENTRYPOINT ["/etcd"]\n'
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    # BuildKit's own front end is an image from a registry; the classic builder needs none.
    subprocess.run(
        ["docker", "build", "-q", "-t", tag, "-"],
        input=context.getvalue(),
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=_BUILD_SECONDS,
    )
    return tag


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
        DockerContainer(build_image())
        .with_exposed_ports(_CLIENT_PORT)
        .with_command(
            f"--data-dir /data --unsafe-no-fsync --listen-client-urls {url} --advertise-client-urls {url}"
            " --heartbeat-interval 20 --election-timeout 200"
        )
    )
    with container:
        endpoint = f"{container.get_container_host_ip()}:{container.get_exposed_port(_CLIENT_PORT)}"
        _wait_healthy(endpoint)
        yield endpoint
