# SPDX-License-Identifier: Apache-2.0
"""What is old is looked through for garbage when sessions have left, not whenever some have come."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coordinator.command import serve
from coordinator.garbage import FEWEST, PASSES, old_put_aside
from coordinator.serve.server import Settings
from tests.support.etcd_source import TestEtcd


class _Node:
    """Refers to itself, so that only a search finds out that nobody else does."""

    def __init__(self) -> None:
        self.itself = self


@contextmanager
def _no_search_but_ours() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_what_is_new_is_found_at_once_and_what_is_old_once_enough_have_left() -> None:
    here, left = 10, 0
    with _no_search_but_ours(), old_put_aside(lambda: (here, left)):
        old = _Node()
        gc.collect()
        assert gc.get_freeze_count() > 0
        gone, new = weakref.ref(old), _Node()
        del old
        lost = weakref.ref(new)
        del new
        gc.collect()
        assert lost() is None, "it had not lived through a search"
        assert gone() is not None, "nobody looks where it is"
        left = FEWEST
        gc.collect()
        gc.collect()
        assert gone() is not None, "not enough have left"
        left += 1
        gc.collect()  # says so
        gc.collect()
        assert gone() is None
        assert gc.get_freeze_count() > 0, "what is left is put aside again"
    assert gc.get_freeze_count() == 0


def test_of_many_sessions_as_many_have_to_leave() -> None:
    here, left = 3 * FEWEST, 0
    with _no_search_but_ours(), old_put_aside(lambda: (here, left)):
        old = _Node()
        gc.collect()
        gone = weakref.ref(old)
        del old
        left = here
        gc.collect()
        gc.collect()
        assert gone() is not None
        left += 1
        gc.collect()
        gc.collect()
        assert gone() is None


def test_after_many_passes_nobody_has_to_leave() -> None:
    with _no_search_but_ours(), old_put_aside(lambda: (1, 0)):
        old = _Node()
        gc.collect()
        gone = weakref.ref(old)
        del old
        for _ in range(PASSES - 1):
            gc.collect()
        assert gone() is not None
        gc.collect()
        gc.collect()
        assert gone() is None


async def test_a_replica_does_so_while_it_serves(
    etcd: TestEtcd, prefix: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    before = len(gc.callbacks)
    serving = asyncio.create_task(serve(Settings(etcd.endpoints, "127.0.0.1:0", prefix=prefix.decode())))
    said = ""
    async with asyncio.timeout(30):
        while "serves on" not in (said := said + capsys.readouterr().out):
            assert not serving.done()
            await asyncio.sleep(0.02)
        assert len(gc.callbacks) == before + 1
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
    assert len(gc.callbacks) == before
