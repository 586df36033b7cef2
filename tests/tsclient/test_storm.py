# SPDX-License-Identifier: Apache-2.0
"""Threads and tasks through killed replicas and rolling restarts of etcd, against the whole system."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from chaos.world import World
from tests.tsclient.child import child
from tests.tsclient.processes import helpers_of, state
from tests.tsclient.test_contention import ROUNDS
from tests.tsclient.waiting import until
from timeslice_proto.v1 import coordinator_pb2

PROGRAM = Path(__file__).with_name("storm_program.py")
DOCUMENTED = {"turn", "TurnLost", "Unavailable", "AcquireTimeout"}  # what a harmed service may do to a caller
TURNS = 3 * ROUNDS


@pytest.mark.slow
@pytest.mark.timeout(300 * ROUNDS)
def test_a_storm_leaves_neither_ghosts_nor_leaks(tmp_path: Path) -> None:
    with World(replicas=2, etcd=3, folder=tmp_path) as world:
        program = f"import runpy, sys\nsys.argv = ['', '{TURNS}']\nrunpy.run_path('{PROGRAM}', run_name='__main__')"
        with child(program, world.endpoints, TIMESLICE_TTL="30", TIMESLICE_JOB_ID="") as process:
            assert process.line() == "ready"
            calm, once = threading.Event(), threading.Event()

            def harm() -> None:
                """Each process of the service, again and again until the program is done."""
                while True:
                    for replica in ("replica0", "replica1"):
                        if calm.wait(1.0):
                            return
                        world.kill(replica)  # every connection to it is reset
                        world.restart(replica)
                    for member in ("etcd0", "etcd1", "etcd2"):
                        if calm.wait(1.0):
                            return
                        world.stop(member)
                        world.restart(member)
                    once.set()

            storm = threading.Thread(target=harm)
            storm.start()
            try:
                assert once.wait(200 * ROUNDS)  # however fast turns are taken: some are in each kind of harm
                process.enter()
                said = json.loads(process.line())
            finally:
                calm.set()
                storm.join()
            (helper,) = helpers_of(process.process.pid)
            assert set(said["outcomes"]) <= DOCUMENTED, said
            assert said["done"] == {"threads": 64, "tasks": 64}, "each has gone through it to its end"
            assert (taken := sum(said["outcomes"].values())) >= 128 * TURNS
            assert said["outcomes"]["turn"] > taken / 2
            assert said["ended"] == said["began"]
            with world.coordinator() as stub:
                until(lambda: not stub.GetGroup(coordinator_pb2.GetGroupRequest(name="demo"), timeout=30).queue)
            process.enter()
            assert process.rest()[0] == 0
        until(lambda: state(helper) == "gone")
