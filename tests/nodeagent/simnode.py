# SPDX-License-Identifier: Apache-2.0
"""A simulated node for tests: the device's process, and workload processes on it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ledger.records import Process
from nodeagent import procfs
from nodeagent.backends.sim import log
from nodeagent.backends.sim.driver import SimulatedDriver

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = [sys.executable, str(ROOT / "ledger" / "die_with_parent.py")]
WORKLOAD = Path(__file__).with_name("workload_child.py")
DEADLINE = 30.0


def start(command: list[str], **more: Any) -> subprocess.Popen[bytes]:
    """Start a Python program that ends with this process."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}:{ROOT / 'protos'}",
        **more.pop("env", {}),
    }
    return subprocess.Popen([*LAUNCH, str(os.getpid()), sys.executable, *command], cwd=ROOT, env=environment, **more)


def end(child: subprocess.Popen[bytes]) -> None:
    """SIGKILL it, also when it is stopped, and reap it."""
    if child.poll() is None:
        child.kill()
    child.wait(DEADLINE)
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class Workload:
    """One workload process of a job: ``script`` with the socket of its devices and ``arguments``."""

    def __init__(
        self,
        socket: Path,
        job: str,
        group: str,
        script: Path = WORKLOAD,
        arguments: Sequence[str] = (),
    ) -> None:
        env = {"TIMESLICE_JOB_ID": job, "TIMESLICE_GROUP": group}
        self.job = job
        self._child = start(
            [str(script), str(socket), *arguments],
            env={name: value for name, value in env.items() if value},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self._child.pid

    @property
    def process(self) -> Process:
        found = procfs.process(self.pid)
        assert found is not None
        return found

    def send(self, command: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(command.encode() + b"\n")
        self._child.stdin.flush()

    def answer(self, timeout: float = DEADLINE) -> dict[str, Any]:
        assert self._child.stdout is not None
        ready, _, _ = select.select([self._child.stdout], [], [], timeout)
        assert ready, f"no answer of {self.job} within {timeout} s"
        line = self._child.stdout.readline()
        assert line, f"{self.job} ended with {self._child.wait(DEADLINE)}"
        out: dict[str, Any] = json.loads(line)
        return out

    def do(self, command: str) -> dict[str, Any]:
        self.send(command)
        return self.answer()

    def attach(self, device: str, *, size: int = 4096, nominal: int = 0) -> Workload:
        self.do(f"attach {device} {size} {nominal}")
        return self

    def intact(self, device: str) -> bool:
        return bool(self.do(f"read {device}")["intact"])

    def blocked(self) -> bool:
        """Whether the command sent last has no answer yet."""
        assert self._child.stdout is not None
        return not select.select([self._child.stdout], [], [], 0.2)[0]

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def wait(self) -> int:
        return self._child.wait(DEADLINE)

    def kill(self, number: int = signal.SIGKILL) -> None:
        self._child.send_signal(number)

    def end(self) -> None:
        end(self._child)


class SimNode:
    """The devices ``SIM-0``, ``SIM-1``, … of one simulated node."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.socket, self.log_path = folder / "device.sock", folder / "device.log"
        self._children = contextlib.ExitStack()
        command = [
            "-m",
            "nodeagent.backends.sim.device",
            "--socket",
            str(self.socket),
            "--log",
            str(self.log_path),
        ]
        self.device = start([*command, "--devices", "2", "--latency", "0.001", *arguments])
        self._children.callback(end, self.device)
        until(self.socket.exists, "the simulated device serves")
        self.driver = SimulatedDriver(self.socket)
        self._children.callback(self.driver.close)

    def workload(self, job: str, group: str = "g", **more: Any) -> Workload:
        workload = Workload(self.socket, job, group, **more)
        self._children.callback(workload.end)
        return workload

    def events(self) -> list[log.Event]:
        return log.read(self.log_path)

    def keep(self, child: subprocess.Popen[bytes]) -> None:
        """End this one with the node, too."""
        self._children.callback(end, child)

    def close(self) -> None:
        self._children.close()


def until(true: Any, what: str, timeout: float = DEADLINE) -> None:
    """Wait for a condition of another process that nothing announces."""
    limit = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < limit, f"not within {timeout} s: {what}"
        time.sleep(0.01)


def stopped(pid: int) -> bool:
    """Whether a SIGSTOP has taken effect."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@contextlib.contextmanager
def sim_node(folder: Path, *arguments: str) -> Iterator[SimNode]:
    node = SimNode(folder, *arguments)
    try:
        yield node
    finally:
        node.close()
