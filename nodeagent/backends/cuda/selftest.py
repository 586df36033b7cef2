# SPDX-License-Identifier: Apache-2.0
"""Whether this node can do it at all: `python -m nodeagent.backends.cuda.selftest` prints what it finds as JSON.

It changes nothing and takes no device memory. The agent runs it in a process of its own, since loading a driver can
hang, and publishes the reason with its registration.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from nodeagent.backends.cuda.checkpoint import CheckpointApi
from nodeagent.backends.cuda.nvml import Facts, Nvml
from nodeagent.backends.driver import DriverError, NoContext

OLDEST_DRIVER = 570
"""The first driver whose library has `cuCheckpointProcess*`."""

_CAP_SYS_PTRACE = 19


class Missing(Enum):
    """What a node lacks."""

    NOTHING = ""
    DRIVER = "DRIVER"
    NEWER_DRIVER = "NEWER_DRIVER"
    DEVICE = "DEVICE"
    NO_MIG = "NO_MIG"
    PRIVILEGE = "PRIVILEGE"


@dataclass(frozen=True, slots=True)
class Readiness:
    """The result. ``why`` is one sentence with the next step, for people; empty when nothing is missing."""

    missing: Missing = Missing.NOTHING
    why: str = ""
    driver: str = ""
    devices: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        return self.missing is Missing.NOTHING

    def __str__(self) -> str:
        """What the agent publishes and refuses with: empty when it is ready."""
        return "" if self.ready else f"{self.missing.value}: {self.why}"


def examine(
    nvml: Callable[[], Nvml] = Nvml,
    api: Callable[[], CheckpointApi] = CheckpointApi,
    status: Callable[[], str] = lambda: Path("/proc/self/status").read_text(encoding="ascii"),
) -> Readiness:
    """Find what is missing first, in the order in which a person would mend it."""
    try:
        facts = nvml().facts()
    except DriverError as error:
        return Readiness(Missing.DRIVER, f"{error.why}; install the NVIDIA driver, or give the container its libraries")
    lacks = _lacks(facts) or _privilege(status())
    if lacks is None:
        try:
            api().state(os.getpid())
        except NoContext:
            pass  # as it should be: this process has nothing on a device
        except DriverError as error:
            lacks = Missing.DRIVER, str(error)
    usable = tuple(one.uuid for one in facts.devices if one.uuid not in facts.mig)
    missing, why = lacks or (Missing.NOTHING, "")
    return Readiness(missing, why, facts.driver, usable)


def _lacks(facts: Facts) -> tuple[Missing, str] | None:
    major = facts.driver.partition(".")[0]
    if not major.isdigit() or int(major) < OLDEST_DRIVER:
        return Missing.NEWER_DRIVER, f"the driver is {facts.driver}; install {OLDEST_DRIVER} or later"
    if not facts.devices:
        return Missing.DEVICE, "the driver shows no device; give the agent's container all devices of the node"
    if len(facts.mig) == len(facts.devices):
        return Missing.NO_MIG, "every device is in MIG mode, which cannot be checkpointed; nvidia-smi --mig 0"
    return None


def _privilege(status: str) -> tuple[Missing, str] | None:
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    if int(fields["CapEff"], 16) >> _CAP_SYS_PTRACE & 1:
        return None
    return Missing.PRIVILEGE, "the agent lacks CAP_SYS_PTRACE; run it as root, in the host's pid namespace"


def main() -> int:
    """Print it; 0 when ready."""
    found = examine()
    print(json.dumps({**asdict(found), "missing": found.missing.value, "ready": found.ready}))
    return 0 if found.ready else 1


if __name__ == "__main__":
    sys.exit(main())
