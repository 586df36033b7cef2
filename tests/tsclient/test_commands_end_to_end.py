# SPDX-License-Identifier: Apache-2.0
"""The commands of the lock against the whole system: real coordinators, agent and etcd, simulated devices."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.world import World
from ledger.codec import decode
from ledger.etcd import EtcdClient
from ledger.keys import Keys
from ledger.records import Registered
from tests.tsclient.child import ROOT
from tsclient.cli.exits import Exit, RunExit

TIMESLICE = (sys.executable, "-m", "tsclient.cli.main")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World(group="g") as running:
        yield running


@pytest.fixture
def environment(world: World) -> Iterator[dict[str, str]]:
    runtime = tempfile.mkdtemp(prefix="ts-")
    yield {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "protos")]),
        "TIMESLICE_ENDPOINTS": ",".join(world.endpoints),
        "TIMESLICE_GROUP": "g",
        "XDG_RUNTIME_DIR": runtime,
    }
    shutil.rmtree(runtime)


def registered(world: World, job: str) -> set[int]:
    """The pids that the ledger has for the job on its one node."""

    async def read() -> set[int]:
        async with EtcdClient(world.etcd.endpoints) as client:
            found = await client.get(Keys().registered(world.nodes[0].name, "g", job))
        return {process.pid for process in decode(Registered, found.value).processes} if found is not None else set()

    return asyncio.run(read())


def holder(world: World) -> str:
    """Of the group; empty if there is none."""
    from timeslice_proto.v1 import coordinator_pb2

    with world.coordinator() as stub:
        return stub.GetGroup(coordinator_pb2.GetGroupRequest(name="g"), timeout=30).turn.holder.job


def test_a_command_has_the_turn_and_stands_in_the_ledger_while_it_runs(
    world: World, environment: dict[str, str]
) -> None:
    command = [*TIMESLICE, "run", "--job", "a", "--node", "n0", "--", "sh", "-c", "echo $$; read line; exit 9"]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout is not None
            pid = int(running.stdout.readline())
            assert holder(world) == "a"
            assert registered(world, "a") == {pid}
            running.communicate("\n", timeout=60)
            assert running.returncode == 9
        finally:
            running.kill()
    assert holder(world) == ""
    assert registered(world, "a") == set()


def test_an_evicted_command_is_stopped(world: World, environment: dict[str, str]) -> None:
    command = [*TIMESLICE, "run", "--job", "b", "--", "sh", "-c", "echo ready; sleep 1000"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == "ready\n"
            subprocess.run([*TIMESLICE, "evict", "g", "b"], env=environment, check=True, timeout=60)
            assert running.wait(60) == RunExit.LOST
        finally:
            running.kill()


def test_a_shell_script_holds_the_turn_between_two_commands(world: World, environment: dict[str, str]) -> None:
    script = f"""
        set -e
        timeslice() {{ {sys.executable} -m tsclient.cli.main "$@"; }}
        ticket=$({sys.executable} -m tsclient.cli.main acquire --job c --pid $$)
        timeslice status --ticket "$ticket"
        timeslice get groups
        timeslice yield --ticket "$ticket"
        timeslice status --ticket "$ticket"
    """
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == Exit.NOT_FOUND, done.stderr  # of the last line
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[1][1:3] == ["g", "c"]
    assert lines[3][:3] == ["g", "held", "c"]
    assert holder(world) == ""


def test_who_ends_without_a_word_leaves_no_turn(world: World, environment: dict[str, str]) -> None:
    script = f"{sys.executable} -m tsclient.cli.main acquire --job d --pid $$ && kill -9 $$"
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == -9
    after = subprocess.run(
        [*TIMESLICE, "run", "--job", "e", "--wait", "60", "--", "true"], env=environment, timeout=100, check=False
    )
    assert after.returncode == 0
    assert Path(environment["XDG_RUNTIME_DIR"], "timeslice").is_dir()
