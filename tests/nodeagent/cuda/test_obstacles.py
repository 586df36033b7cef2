# SPDX-License-Identifier: Apache-2.0
"""What is judged by /proc alone. The samples are as PyTorch processes on driver 580 show them, cut to what matters."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from nodeagent.backends.cuda.obstacles import NCCL_SETTINGS, Found, Mapped, count_touched, judge, look, read_maps

MIB = 1 << 20
PRESENT = 1 << 63
HUGE = 512
NCCL = "/opt/torch/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"

PLAIN = f"""\
200600000-200800000 rw-s 00000000 00:05 114                              /dev/nvidia0
200800000-204000000 rw-s 00000000 00:05 111                              /dev/nvidiactl
204a00000-204c00000 rw-s 204a00000 00:05 112                             /dev/nvidia-uvm
300000000-300020000 -w-s 00000000 00:05 115                              /dev/nvidia1
7f4222800000-7f4222a00000 rw-s 00000000 00:01 2052                       /dev/zero (deleted)
7f4493000000-7f449e4e1000 r-xp 00000000 fe:00 28572                      {NCCL}
7f449e4e1000-7f449e6e1000 ---p 0b4e1000 fe:00 28572                      {NCCL}
7f449e6eb000-7f449e704000 rw-p 0b4eb000 fe:00 28572                      {NCCL}
7ffd3a5f0000-7ffd3a611000 rw-p 00000000 00:00 0                          [stack]
7f44eadb0000-7f44eadb4000 rw-p 00000000 00:00 0
"""
MANAGED = "7f41f8000000-7f41fc000000 rw-s 7f41f8000000 00:05 112    /dev/nvidia-uvm\n"
SECOND_DEVICE = """\
200800000-200a00000 rw-s 00000000 00:05 115                              /dev/nvidia1
204c00000-204e00000 rw-s 204c00000 00:05 112                             /dev/nvidia-uvm
"""
NCCL_SHM = "7f1661000000-7f1665142000 rw-s 00000000 00:1b 6    /dev/shm/nccl-4RXdQy (deleted)\n"
COUNTERS = "7f16619ec000-7f1661a00000 rw-s 00000000 00:1b 6    /dev/shm/torch_3182_3996662990_0\n"
HOST_TENSOR = "7f16619ec000-7f1661bec000 rw-s 00000000 00:1b 6    /dev/shm/torch_3182_3996662990_1\n"
OTHERS_SHM = "7f166344c000-7f166344d000 rw-s 00000000 00:1b 5    /dev/shm/sem.0yMjOj (deleted)\n"


def found(
    text: str = PLAIN, *, touched: int = MIB, threads: tuple[str, ...] = (), env: Mapping[str, str] | None = None
) -> Found:
    """A process with these maps, which has used so much of NCCL's code."""
    threads = ("python3", "cuda-EvtHandlr", *threads)
    return Found(env or {}, frozenset(threads), tuple(read_maps(text, lambda first, end: min(touched, end - first))))


def test_the_lines_of_maps() -> None:
    asked: list[tuple[int, int]] = []

    def touched(first: int, end: int) -> int:
        asked.append((first, end))
        return 7

    lines = list(read_maps(PLAIN, touched))
    assert lines[0] == Mapped("/dev/nvidia0", "rw-s", 2 * MIB)
    assert Mapped("/dev/zero (deleted)", "rw-s", 2 * MIB) in lines
    assert [one.touched for one in lines if one.name == NCCL] == [7, 0, 0]
    assert asked == [(0x7F4493000000, 0x7F449E4E1000)], "pages are counted of NCCL's code alone: that takes its time"
    assert all(one.name for one in lines)


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(found(), id="a context on a device"),
        pytest.param(found(PLAIN + SECOND_DEVICE), id="contexts on two devices"),
        pytest.param(found(PLAIN + HOST_TENSOR + OTHERS_SHM), id="host tensors in shared memory"),
        pytest.param(found(touched=6 * MIB), id="NCCL linked and not used"),
        pytest.param(found(env={"WORLD_SIZE": "1"}), id="the only rank"),
        pytest.param(found("", env={"SLURM_NTASKS": "8"}), id="a rank without NCCL"),
        pytest.param(found(threads=("pt_nccl_watchdg",), touched=15 * MIB, env=NCCL_SETTINGS), id="NCCL as it must be"),
        pytest.param(found(PLAIN + NCCL_SHM, env={**NCCL_SETTINGS, "WORLD_SIZE": "8"}), id="its file as it must be"),
    ],
)
def test_what_can_be_moved(one: Found) -> None:
    assert judge(one) == ""


@pytest.mark.parametrize(
    ("one", "why"),
    [
        pytest.param(found(threads=("pt_nccl_heartbt",)), "the thread 'pt_nccl_heartbt'", id="PyTorch's thread"),
        pytest.param(found(threads=("NCCL I/O Rx", "x")), "the thread 'NCCL I/O Rx'", id="NCCL's own thread"),
        pytest.param(found(PLAIN + NCCL_SHM), "/dev/shm/nccl-4RXdQy", id="its file"),
        pytest.param(found(touched=15 * MIB), "used 15 MiB of NCCL's code", id="its code"),
        pytest.param(found(env={"WORLD_SIZE": "2"}), "one of several ranks (WORLD_SIZE=2)", id="torchrun"),
        pytest.param(found(env={"SLURM_NTASKS": "8"}), "one of several ranks (SLURM_NTASKS=8)", id="Slurm"),
    ],
)
def test_nccl(one: Found, why: str) -> None:
    said = judge(one)
    assert said.startswith("NCCL: ")
    assert why in said
    assert said.endswith("NCCL_CUMEM_ENABLE=0 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1")


@pytest.mark.parametrize("setting", NCCL_SETTINGS)
def test_two_of_the_three_settings_are_not_enough(setting: str) -> None:
    rest = {name: value for name, value in NCCL_SETTINGS.items() if name != setting}
    for environ in (rest, {**rest, setting: "2"}):
        assert judge(found(threads=("pt_nccl_watchdg",), env=environ)).startswith("NCCL: ")


def test_managed_memory_is_what_exceeds_the_contexts_own() -> None:
    assert judge(found(PLAIN + MANAGED)).startswith("managed memory: 64 MiB")
    assert judge(found(PLAIN + SECOND_DEVICE + MANAGED)).startswith("managed memory: 64 MiB")
    # A device that is only looked at is mapped otherwise, and brings no allowance.
    extra = SECOND_DEVICE.replace("rw-s 00000000 00:05 115", "-w-s 00000000 00:05 115")
    assert judge(found(PLAIN + extra)).startswith("managed memory: 2 MiB")


def test_device_tensors_given_away_by_pytorch() -> None:
    said = judge(found(PLAIN + COUNTERS))
    assert said.startswith("CUDA IPC: ")
    assert "torch_3182_3996662990_0" in said


@pytest.mark.parametrize(
    ("pages", "first", "count"),
    [
        pytest.param([PRESENT, 0, PRESENT | 5], 3, 2, id="present or not"),
        pytest.param([1 << 62, 5], 0, 0, id="swapped out is not present"),
        pytest.param([PRESENT] * HUGE, HUGE, 0, id="one huge page"),
        pytest.param([PRESENT] * (HUGE - 1), HUGE, HUGE - 1, id="one page less"),
        pytest.param([PRESENT] * HUGE, 1, HUGE, id="as many, not aligned"),
        pytest.param([PRESENT, *[PRESENT] * HUGE, PRESENT], HUGE - 1, 2, id="a huge page between others"),
        pytest.param([*[PRESENT] * 2 * HUGE], 0, 0, id="two huge pages"),
        pytest.param([0, *[PRESENT] * (HUGE - 1), PRESENT], 0, HUGE, id="a run that begins within one"),
    ],
)
def test_touched_pages(pages: list[int], first: int, count: int) -> None:
    assert count_touched(pages, first) == count


def test_a_real_process_is_looked_at() -> None:
    command = [sys.executable, "-c", "print('on', flush=True); input()"]
    environment = {"PATH": os.environ["PATH"], "NCCL_P2P_DISABLE": "1"}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"on\n"
        there = look(child.pid)
        child.kill()
    assert there is not None
    assert there.environ["NCCL_P2P_DISABLE"] == "1"
    assert len(there.threads) == 1
    assert any("python" in one.name and one.mode == "r-xp" and one.bytes for one in there.mapped)
    assert judge(there) == ""
    assert look(child.pid) is None, "it has ended"
