# SPDX-License-Identifier: Apache-2.0
"""What a driver really shows and does: the facts that `nodeagent.backends.cuda` and docs/cuda.md rest on.

Run it after an upgrade of the driver, on a machine whose devices nobody else uses, as root:
`python -m tests.gpu.probe FILE`. It writes JSON after every step, so that a hang costs only what comes after it.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from ledger.ports import ReservedPorts
from nodeagent.backends.cuda.obstacles import NCCL_SETTINGS
from nodeagent.procfs import resident_bytes
from tests.gpu.children import GIB, MIB, Helper, HelperError, Target

_PLAIN = ("plain", "expandable", "managed", "ipc-export", "torch-ipc", "vmm-export", "pinned", "fork", "graph")
_NCCL = ("nccl", "nccl-safe", "nccl-lazy", "nccl-gone")
_BARE = ("host", "cuinit", "count", "nvml")
_LIMIT = 210.0
"""Seconds after which no step is begun."""

_WORTH = ("nvidia", "nccl", "/dev/", "memfd", "anon_inode", "nvml", "ibverbs")


def outcome(action: Callable[..., Any], *arguments: Any, **more: Any) -> dict[str, Any]:
    """What an action gave or how it failed, and how long it took."""
    begin = time.monotonic()
    try:
        result = {"ok": action(*arguments, **more)}
    except HelperError as error:
        result = {"error": error.why, "final": error.final, "no_context": error.no_context}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the probe is for
        result = {"raised": repr(error), "trace": traceback.format_exc(limit=4)}
    return {**result, "took": round(time.monotonic() - begin, 3)}


class Probe:
    """Collects and writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.report: dict[str, Any] = {}
        self.begin = time.monotonic()
        self.helper = Helper()

    def call(self, name: str, pid: int, within: float = 60.0, **more: Any) -> Any:
        """One driver call; a helper that does not answer is replaced."""
        try:
            return self.helper.call(name, pid, within, **more)
        except (TimeoutError, EOFError):
            self.helper.kill()
            self.helper = Helper()
            raise

    def state(self, pid: int) -> Any:
        return self.call("look", 0, devices=[], of=[], pids=[pid])[1][0][1]

    def note(self, name: str, value: Any) -> None:
        print(f"[{time.monotonic() - self.begin:6.1f} s] {name}: {json.dumps(value)[:600]}", flush=True)
        self.report[name] = value
        self.path.write_text(json.dumps(self.report, indent=1), encoding="utf-8")

    def step(self, name: str, action: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        late = time.monotonic() - self.begin > _LIMIT
        result = {"skipped": "no time left"} if late else outcome(action, *arguments, **more)
        self.note(name, result)
        return result.get("ok")

    # ------------------------------------------------------------------------------------------------ looking

    def machine(self) -> dict[str, Any]:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return {
            "kernel": platform.release(),
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "cuda": pynvml.nvmlSystemGetCudaDriverVersion(),
            "capabilities": [line for line in status.splitlines() if line.startswith("Cap")],
            "ptrace_scope": outcome(Path("/proc/sys/kernel/yama/ptrace_scope").read_text),
            "used_v1": [pynvml.nvmlDeviceGetMemoryInfo(one).used for one in handles],
            "used_v2": [pynvml.nvmlDeviceGetMemoryInfo(one, version=pynvml.nvmlMemory_v2).used for one in handles],
            "mig": [outcome(pynvml.nvmlDeviceGetMigMode, one) for one in handles],
            "persistence": [pynvml.nvmlDeviceGetPersistenceMode(one) for one in handles],
            "devices": sorted(str(one) for one in Path("/dev").glob("nvidia*")),
            "memory": Path("/proc/meminfo").read_text(encoding="ascii").splitlines()[:3],
        }

    def process(self, pid: int) -> dict[str, Any]:
        proc = Path(f"/proc/{pid}")
        lines = (proc / "maps").read_text(encoding="utf-8", errors="replace").splitlines()
        mapped: Counter[str] = Counter()
        for line in lines:
            where, mode, _, _, _, *name = line.split(None, 5)
            if name and any(word in name[0] for word in _WORTH):
                first, last = (int(one, 16) for one in where.split("-"))
                mapped[f"{mode} {name[0]}"] += last - first
        return {
            "threads": Counter((one / "comm").read_text(encoding="utf-8").strip() for one in (proc / "task").iterdir()),
            "mapped": mapped,
            "open": Counter(str(one.readlink()).split(":")[0] for one in (proc / "fd").iterdir()),
            "nccl_pages": nccl_pages(proc),
            "used": self.used_by(pid),
        }

    def used_by(self, pid: int) -> list[dict[str, Any]]:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [
            {"device": index, "bytes": one.usedGpuMemory}
            for index, handle in enumerate(handles)
            for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            if one.pid == pid
        ]

    def listed(self) -> list[Any]:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        return [(one.pid, one.usedGpuMemory) for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]

    # ------------------------------------------------------------------------------------------------ acting

    def round_trip(self, target: Target, then: str = "print") -> dict[str, Any]:
        """Off and on again, then let it work; killed if that cannot be."""
        steps: dict[str, Any] = {"before": outcome(target.ask, "print", 30)}
        if "ok" not in steps["before"]:
            return steps
        plan: list[tuple[str, dict[str, Any]]] = [("lock", {"timeout_ms": 5000}), ("checkpoint", {}), ("restore", {})]
        for call, more in [*plan, ("unlock", {})]:
            steps[call] = outcome(self.call, call, target.pid, 25, **more)
            if "ok" not in steps[call]:
                steps["state"] = outcome(self.state, target.pid)
                steps["again"] = outcome(self.call, call, target.pid, 25, **more)
                target.kill()
                return steps
            if call == "checkpoint":
                steps["used_parked"] = self.used_by(target.pid)
        steps["after"] = outcome(target.ask, "print", 30)
        steps["same"] = steps["before"].get("ok") == steps["after"].get("ok")
        steps["then"] = outcome(target.ask, then, 20)
        return steps

    def misuse(self, target: Target) -> dict[str, Any]:
        """Calls in the wrong state, and on what is no CUDA process."""
        pid = target.pid
        threads = [int(one.name) for one in Path(f"/proc/{pid}/task").iterdir() if int(one.name) != pid]
        return {
            "checkpoint_running": outcome(self.call, "checkpoint", pid),
            "restore_running": outcome(self.call, "restore", pid),
            "unlock_running": outcome(self.call, "unlock", pid),
            "lock": outcome(self.call, "lock", pid, timeout_ms=5000),
            "lock_again": outcome(self.call, "lock", pid, timeout_ms=5000),
            "restore_locked": outcome(self.call, "restore", pid),
            "unlock": outcome(self.call, "unlock", pid),
            "spin": outcome(target.ask, "spin"),
            "lock_busy": outcome(self.call, "lock", pid, timeout_ms=300),
            "state_busy": outcome(self.state, pid),
            "lock_patient": outcome(self.call, "lock", pid, timeout_ms=20000),
            "unlock_patient": outcome(self.call, "unlock", pid),
            "state_thread": outcome(self.state, threads[0]),
            "state_init": outcome(self.state, 1),
            "state_none": outcome(self.state, 4_000_000),
            "state_helper": outcome(self.state, self.helper.pid),
        }

    def watched(self, target: Target, call: str) -> dict[str, Any]:
        """What memory figures do while a call lasts."""
        samples: list[tuple[float, int, int, list[Any]]] = []
        over = threading.Event()
        begin = time.monotonic()

        def sample() -> None:
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            while not over.wait(0.15):
                used = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used
                now = round(time.monotonic() - begin, 2)
                samples.append((now, resident_bytes(target.pid) // MIB, used // MIB, self.used_by(target.pid)))

        thread = threading.Thread(target=sample)
        thread.start()
        result = outcome(self.call, call, target.pid)
        over.set()
        thread.join()
        return {**result, "samples": samples[:: max(1, len(samples) // 40)], "progress": self.helper.progress}

    def interrupted(self, target: Target, call: str, after: float) -> dict[str, Any]:
        """The helper is killed in mid-call: what becomes of the target?"""
        with Helper() as doomed:
            doomed.call("devices")
            doomed.begin(call, target.pid)
            time.sleep(after)
        begin, seen = time.monotonic(), []
        while time.monotonic() < begin + 8:
            state = outcome(self.state, target.pid)
            seen.append((round(time.monotonic() - begin, 2), state, self.used_by(target.pid)))
            time.sleep(0.5)
        changes = [one for before, one in zip([None, *seen], seen, strict=False) if not before or one[1:] != before[1:]]
        return {"states": changes[:20], "last": seen[-1]}


def nccl_pages(proc: Path) -> dict[str, int]:
    """How much of the NCCL library a process has touched, in KiB."""
    total: Counter[str] = Counter()
    inside = False
    for line in (proc / "smaps").read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if " " in name:
            inside = "libnccl.so" in line
            mode = line.split(None, 2)[1]
        elif inside and name in ("Rss", "Private_Dirty", "Anonymous"):
            total[f"{mode} {name}"] += int(value.split()[0])
    return total


def as_nobody(probe: Probe, target: Target) -> dict[str, Any]:
    """What a helper without privileges meets."""
    with Helper(user="nobody") as helper:
        return {
            "state": outcome(helper.state, target.pid, 20),
            "check": outcome(helper.call, "check", target.pid, 20),
            "lock": outcome(helper.call, "lock", target.pid, 20, timeout_ms=1000),
            "after": outcome(probe.state, target.pid),
        }


def selftest(user: str | None) -> list[Any]:
    command = [sys.executable, "-m", "nodeagent.backends.cuda.selftest"]
    done = subprocess.run(command, user=user, capture_output=True, text=True, timeout=60)
    return [done.returncode, done.stdout, done.stderr[-500:]]


def two_ranks(probe: Probe, safe: bool) -> None:
    """Two ranks on two devices, with the settings that can be restored and without."""
    name, more = f"two-ranks-{'safe' if safe else 'default'}", dict(NCCL_SETTINGS) if safe else {}
    with ReservedPorts(1) as ports:
        more |= {"WORLD_SIZE": "2", "MASTER_PORT": str(ports.ports[0])}
        both = [Target("nccl", env={**more, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(2)]
    try:
        for index, one in enumerate(both):
            probe.step(f"{name} {index} ready", one.ready)
        for index, one in enumerate(both):
            probe.step(f"{name} {index} process", probe.process, one.pid)
            probe.step(f"{name} {index} check", probe.call, "check", one.pid)
        for call, args in (("lock", {"timeout_ms": 5000}), ("checkpoint", {}), ("restore", {}), ("unlock", {})):
            for index, one in enumerate(both):
                probe.step(f"{name} {index} {call}", probe.call, call, one.pid, 30, **args)
        for one in both:
            one.send("reduce")
        probe.step(f"{name} reduce", lambda: [one.receive(30) for one in both])
    finally:
        for one in both:
            one.kill()


def look(probe: Probe, targets: dict[str, Target]) -> None:
    """Everything that can be seen without acting."""
    for kind, target in targets.items():
        probe.step(f"{kind} ready", target.ready)
    handle = probe.step("ipc handle", targets["ipc-export"].ask, "handle")
    targets["ipc-import"] = Target("ipc-import", env={"IPC_HANDLE": str(handle)})
    probe.step("ipc-import ready", targets["ipc-import"].ready)
    probe.step("listed", probe.listed)
    for kind, target in targets.items():
        probe.step(f"{kind} process", probe.process, target.pid)
        probe.step(f"{kind} state", probe.state, target.pid)
        probe.step(f"{kind} check", probe.call, "check", target.pid)
    child = probe.step("fork child", targets["fork"].ask, "handle")
    if child:
        probe.step("fork child state", probe.state, int(child))
        probe.step("fork child used", probe.used_by, int(child))
    probe.step("nobody", as_nobody, probe, targets["plain"])


def act_big(probe: Probe, big: Target) -> None:
    """A state that takes seconds to move: what shows meanwhile, and what an end of the helper does to it."""
    probe.step("big before", big.ask, "print")
    probe.step("big lock", probe.call, "lock", big.pid, timeout_ms=5000)
    probe.step("big checkpoint", probe.watched, big, "checkpoint")
    probe.step("big listed", probe.listed)
    probe.step("big parked", probe.process, big.pid)
    probe.step("big restore", probe.watched, big, "restore")
    probe.step("big unlock", probe.call, "unlock", big.pid)
    probe.step("big after", big.ask, "print")
    probe.step("interrupted lock", probe.call, "lock", big.pid, timeout_ms=5000)
    probe.step("interrupted checkpoint", probe.interrupted, big, "checkpoint", 2.0)
    probe.step("interrupted checkpoint, again", probe.call, "checkpoint", big.pid)
    probe.step("interrupted restore", probe.interrupted, big, "restore", 1.0)
    probe.step("interrupted restore, again", probe.call, "restore", big.pid)
    probe.step("interrupted unlock", probe.call, "unlock", big.pid)
    probe.step("interrupted after", big.ask, "print")


def environment(kind: str, port: int) -> dict[str, str]:
    more = {"MASTER_PORT": str(port)}
    if kind == "nccl-safe":
        more |= NCCL_SETTINGS
    if kind == "expandable":
        more |= {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    return more


def main(path: str) -> None:
    """Look first, then act; the steps that can lose a target come last."""
    pynvml.nvmlInit()
    probe = Probe(Path(path))
    targets: dict[str, Target] = {}
    try:
        probe.step("machine", probe.machine)
        for user in (None, "nobody"):
            probe.step(f"selftest of {user or 'root'}", selftest, user)
        with ReservedPorts(len(_NCCL)) as reserved:
            ports = dict(zip(_NCCL, reserved.ports, strict=True))
        for kind in (*_BARE, *_PLAIN, *_NCCL):
            targets[kind] = Target(kind, env=environment(kind, ports.get(kind, 0)))
        targets["big"] = Target("plain", 8 * GIB)
        probe.step("look", look, probe, targets)
        probe.step("misuse", probe.misuse, targets["plain"])
        then = {"nccl": "reduce", "nccl-safe": "reduce", "nccl-lazy": "reduce", "graph": "replay"}
        simple = [kind for kind in _PLAIN if "ipc" not in kind]
        for kind in simple:
            probe.step(f"{kind} trip", probe.round_trip, targets[kind], then.get(kind, "step"))
        probe.step("act", act_big, probe, targets["big"])
        for kind in _NCCL:
            probe.step(f"{kind} trip", probe.round_trip, targets[kind], then.get(kind, "step"))
        for kind in ("ipc-export", "ipc-import", "torch-ipc"):
            probe.step(f"{kind} trip", probe.round_trip, targets[kind])
        if pynvml.nvmlDeviceGetCount() > 1:
            for safe in (False, True):
                probe.step(f"two ranks, safe={safe}", two_ranks, probe, safe)
    finally:
        for target in targets.values():
            target.kill()
        probe.helper.kill()
    probe.step("machine afterwards", probe.machine)


if __name__ == "__main__":
    main(*sys.argv[1:])
