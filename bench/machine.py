# SPDX-License-Identifier: Apache-2.0
"""What a measurement was made on and with: figures mean nothing without it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("grpcio", "protobuf", "msgspec")
_GIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine and the programs on it. Names and numbers as the operating system gives them.

    Attributes:
        cores: that this process may run on.
        load: the average of the last minute when the run began.
        commit: of the checkout; ``+`` at its end: with changes. Empty: no checkout.
    """

    processor: str
    cores: int
    memory_bytes: int
    kernel: str
    python: str
    etcd: str
    packages: dict[str, str]
    commit: str
    load: float


def describe(etcd: str) -> Machine:
    """This machine, now. ``etcd``: the server's version."""
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=platform.release(),
        python=sys.version.split()[0],
        etcd=etcd,
        packages={name: found for name in _PACKAGES if (found := _version(name))},
        commit=_commit(),
        load=os.getloadavg()[0],
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _commit() -> str:
    here = Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
