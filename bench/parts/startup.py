# SPDX-License-Identifier: Apache-2.0
"""Part i: how long until each program is of use, from the start of its process, beside Python's own start."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from bench.figures import Found, timed
from bench.measure import Case, Sample, interleave, summarise
from bench.settings import Settings
from bench.system import Bench, Contender, System, free_port, replica, started

_WITHIN = 60.0
_PYTHON = "python, nothing imported"


def run(bench: Bench, settings: Settings) -> Found:
    """Each program is started anew each round, beside a system that runs, and ended again."""
    with contextlib.ExitStack() as stack:
        system = System(bench, stack, "i")
        (node,) = system.nodes
        system.put_group("first", (node, 0))
        cases = [
            Case(_PYTHON, lambda: _timed([sys.executable, "-c", "pass"])),
            Case("import tsclient", lambda: _timed([sys.executable, "-c", "import tsclient"])),
            Case("replica ready", _each(lambda one: _replica(bench, one))),
            Case("agent ready", _agent(bench, system)),
            Case("client: process, session, first acquire granted", _client(bench, system)),
        ]
        taken = interleave(cases, settings.starts, warm_up=1, rng=random.Random(settings.seed))
    found = {name: summarise(samples) for name, samples in taken.items()}
    return Found(tuple(timed("i", name, one, x_python=one.p50 / found[_PYTHON].p50) for name, one in found.items()))


def _timed(command: Sequence[str]) -> Sample:
    began = time.monotonic()
    subprocess.run(command, check=True, timeout=_WITHIN, capture_output=True)
    return Sample(time.monotonic() - began)


def _each(start: Callable[[contextlib.ExitStack], None]) -> Callable[[], Sample]:
    """The time of ``start``, whose processes are ended then."""

    def take() -> Sample:
        with contextlib.ExitStack() as stack:
            began = time.monotonic()
            start(stack)
            return Sample(time.monotonic() - began)

    return take


def _replica(bench: Bench, stack: contextlib.ExitStack) -> None:
    endpoint = free_port(stack)
    started(stack, replica(bench, "i-replica", "/i/", endpoint))


def _agent(bench: Bench, system: System) -> Callable[[], Sample]:
    """The node's own agent, killed and started again: with its journal, and with its old registration in the way."""
    child = system.processes[f"agent-{system.nodes[0].name}"]

    def take() -> Sample:
        child.kill()
        began = time.monotonic()
        child.start()
        child.wait_ready(_WITHIN)
        return Sample(time.monotonic() - began)

    return take


def _client(bench: Bench, system: System) -> Callable[[], Sample]:
    """A job's first turn where nobody else wants one. The job is resident already but for the first time."""

    def start(stack: contextlib.ExitStack) -> None:
        contender = Contender(bench, stack, "bench.job", system.endpoints[0], "first", "first-a")
        contender.acquire()
        contender.granted()
        stack.callback(contender.close)

    return _each(start)
