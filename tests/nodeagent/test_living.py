# SPDX-License-Identifier: Apache-2.0
"""Who is alive is told by the kernel: of that very process, and at once when it has ended."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from ledger.records import Process
from nodeagent import procfs
from nodeagent.living import Living


@contextmanager
def _child() -> Iterator[tuple[subprocess.Popen[bytes], Process]]:
    """A process that lives until it is killed, and is a zombie until it is waited for."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        one = procfs.process(child.pid)
        assert one is not None
        try:
            yield child, one
        finally:
            child.kill()


def _handles() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_process_is_asked_about_once_and_its_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    living = Living()
    with _child() as (first, one), _child() as (_, other):
        assert living.among([one, other]) == [one, other]
        with monkeypatch.context() as without:
            without.setattr(procfs, "process", lambda _: None)
            assert living.among([one, other]) == [one, other], "nobody asks /proc again"
        first.kill()
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is a zombie
        assert living.among([one, other]) == [other]
        assert living.among([one]) == []
    living.close()


def test_another_with_its_pid_is_not_taken_for_it() -> None:
    living = Living()
    with _child() as (_, one):
        earlier, other_boot = replace(one, start_time=one.start_time - 1), replace(one, boot_id="another")
        assert living.among([earlier, one, other_boot]) == [one]
        assert living.among([earlier, one, other_boot]) == [one]
    living.close()


def test_no_handle_outlives_its_process_or_the_agent() -> None:
    living = Living()
    with _child() as (first, one), _child() as (_, other):
        before = _handles()
        earlier = replace(other, start_time=other.start_time - 1)
        living.among([one, other, earlier])
        assert _handles() == before + 2
        first.kill()
        first.wait()
        living.among([])
        assert _handles() == before + 1
        living.close()
        assert _handles() == before
        assert living.among([one, other]) == [other], "met anew"
        living.close()


def test_without_a_handle_proc_is_asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    living = Living()
    with _child() as (first, one):
        monkeypatch.setattr(os, "pidfd_open", none_left)
        assert living.among([one]) == [one]
        first.kill()
        first.wait()
        assert living.among([one]) == []
    living.close()


def test_a_handle_that_cannot_be_listened_to_is_not_kept() -> None:
    living = Living()
    living._ended.close()
    living._ended = _Full()  # type: ignore[assignment]
    with _child() as (first, one):
        before = _handles()
        assert living.among([one]) == [one]
        assert _handles() == before
        first.kill()
        first.wait()
        assert living.among([one]) == []
    living.close()


class _Full:
    """An epoll that can watch no more (its user's limit of watches is reached)."""

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        return []

    def register(self, handle: int, events: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
