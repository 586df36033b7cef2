# SPDX-License-Identifier: Apache-2.0
"""Whose a process is; and what /proc and control groups say."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from ledger.records import Process
from nodeagent import procfs
from nodeagent.discovery import Machine, owner
from nodeagent.hostmemory import FixedMemory, MachineMemory, headroom

ME = Process("boot", 1, 1)
MATE = Process("boot", 2, 2)


@pytest.mark.parametrize(
    ("environ", "known", "pods", "job"),
    [
        ({"TIMESLICE_JOB_ID": "a", "TIMESLICE_GROUP": "g"}, {}, {}, "a"),
        ({"TIMESLICE_JOB_ID": "a"}, {}, {}, "a"),
        ({"TIMESLICE_JOB_ID": "a", "TIMESLICE_GROUP": "other"}, {}, {}, None),
        ({"TIMESLICE_JOB_ID": "No Name"}, {}, {}, None),
        ({}, {}, {}, None),
        ({"TIMESLICE_JOB_ID": "a"}, {"b": [ME]}, {}, "b"),  # what was registered counts first
        ({}, {"b": [MATE]}, {1: "u", 2: "u"}, "b"),  # the same pod
        ({}, {"b": [MATE]}, {1: "u", 2: "v"}, None),
        ({}, {"b": [Process("boot", 1, 9)]}, {}, None),  # another process that had this pid
        (None, {}, {}, None),  # it has ended meanwhile
    ],
)
def test_owner(
    environ: Mapping[str, str] | None, known: dict[str, list[Process]], pods: dict[int, str], job: str | None
) -> None:
    machine = Machine(environ=lambda _: environ, pod_uid=pods.get)
    assert owner(ME, "g", known, machine) == job


def test_a_process_is_known_by_pid_and_start_time() -> None:
    # It speaks first: in the instant of its exec a process has no environment to be read yet.
    command = ["/bin/sh", "-c", "echo there; read never"]
    child = subprocess.Popen(command, env={"TIMESLICE_JOB_ID": "x=y"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"there\n"
    try:
        one = procfs.process(child.pid)
        assert one is not None
        assert procfs.alive(one)
        assert not procfs.alive(Process(one.boot_id, one.pid, one.start_time + 1))
        assert not procfs.alive(Process("another boot", one.pid, one.start_time))
        environ = procfs.environ(child.pid)
        assert environ is not None
        assert environ["TIMESLICE_JOB_ID"] == "x=y"
        assert procfs.resident_bytes(child.pid) > 0
    finally:
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert procfs.process(child.pid) is None, "a zombie holds nothing any more"
        child.wait()
        for pipe in (child.stdin, child.stdout):
            assert pipe is not None
            pipe.close()
    assert procfs.environ(child.pid) is None
    assert procfs.resident_bytes(child.pid) == 0


@pytest.mark.parametrize(
    ("content", "uid"),
    [
        (
            "0::/kubepods.slice/kubepods-burstable-pod1b4e28ba_2fa1_11d2_883f_0016d3cca427.slice/cri-aa.scope",
            "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
        ),
        (
            "4:memory:/kubepods/besteffort/pod1b4e28ba-2fa1-11d2-883f-0016d3cca427/aa",
            "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
        ),
        ("0::/user.slice", None),
    ],
)
def test_pod_uid(content: str, uid: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "cgroup", lambda _: content)
    assert procfs.pod_uid(1) == uid


def cgroup(folder: Path, limit: str, used: int, cache: int, *, version: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    two = version == 2
    (folder / ("memory.max" if two else "memory.limit_in_bytes")).write_text(f"{limit}\n")
    (folder / ("memory.current" if two else "memory.usage_in_bytes")).write_text(f"{used}\n")
    name = "inactive_file" if two else "total_inactive_file"
    (folder / "memory.stat").write_text(f"anon 1\n{name} {cache}\n")


@pytest.mark.parametrize("version", [1, 2])
def test_headroom_counts_cache_as_room(tmp_path: Path, version: int) -> None:
    cgroup(tmp_path, "100", 90, 30, version=version)
    assert headroom(tmp_path) == 40


def test_no_limit(tmp_path: Path) -> None:
    cgroup(tmp_path, "max", 90, 30)
    assert headroom(tmp_path) is None
    assert headroom(tmp_path / "none") is None


@pytest.mark.parametrize("controllers", ["", "memory,cpu"])
def test_every_control_group_above_a_process_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, controllers: str
) -> None:
    """The job's own group has room; the one above, which two of its processes share, has not."""
    version = 1 if controllers else 2
    root = tmp_path / "memory" if controllers else tmp_path
    for name in ("one", "two"):
        cgroup(root / "pod" / name, "1000", 0, 0, version=version)
    cgroup(root / "pod", "100", 0, 0, version=version)
    paths = {1: "one", 2: "two"}
    monkeypatch.setattr(procfs, "cgroup", lambda pid: f"3:{controllers}:/pod/{paths[pid]}\n")
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable: 10 kB\n")
    memory = MachineMemory(proc=tmp_path, cgroups=tmp_path)
    assert memory.total() == 100 << 10
    assert memory.shortage({ME: 60, MATE: 40}, 0, 0) == ""
    assert "pod: 100 are free" in memory.shortage({ME: 61, MATE: 40}, 0, 0)


def test_reservations_of_others_count_against_the_machine(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable: 1 kB\n")
    memory = MachineMemory(proc=tmp_path, cgroups=tmp_path)
    assert memory.shortage({ME: 24}, 1000, 0) == ""
    assert "1000 are reserved" in memory.shortage({ME: 25}, 1000, 0)


@pytest.mark.parametrize(("promised", "parked", "short"), [(50, 40, False), (51, 40, True), (50, 41, True)])
def test_fixed_memory(promised: int, parked: int, short: bool) -> None:
    assert bool(FixedMemory(100).shortage({ME: 10}, promised, parked)) is short
