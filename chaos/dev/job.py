# SPDX-License-Identifier: Apache-2.0
"""A simulated RL job, `python -m chaos.dev.job`: it samples elsewhere, then trains on the shared devices, again and
again.

This process is the job's client; its state is with one worker process on each node. It uses the public API alone:

    with client.accelerators(*groups) as turn:
        ...

It is told what to do on its standard input: ``run SECONDS`` (or ``run`` for as long as it is not told otherwise),
``rest``, ``move`` (close the session and open another one, at any replica); at the end of the input it ends. What it
does is reported on its standard output (`chaos.dev.lines`). The first turn is acquired before any worker exists:
acquire first, then start the workers.
"""

from __future__ import annotations

import argparse
import enum
import json
import math
import random
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass

import tsclient as ts
from chaos.dev.lines import Asked, Granted, Line, Ready, Rested, Trouble, Yielded, to_json


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How a job spends its time: ``busy`` and ``idle`` seconds a step, each varied by up to ``spread`` of itself.

    ``kernel``: seconds of one kernel. ``bytes``: what the job's memory counts for on each device.
    """

    busy: float = 1.0
    idle: float = 1.5
    spread: float = 0.3
    kernel: float = 0.1
    bytes: int = 2 << 30

    def vary(self, seconds: float, random: random.Random) -> float:
        return seconds * random.uniform(1 - self.spread, 1 + self.spread)


class WorkerLost(Exception):
    """A worker has ended."""


_REAL_BYTES = 4096


class Workers:
    """The job's processes on the nodes. ``places``: for each node its socket and then its devices."""

    def __init__(self, places: list[list[str]], rhythm: Rhythm) -> None:
        self._all = [
            subprocess.Popen(
                [sys.executable, "-m", "chaos.dev.worker", *place],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for place in places
        ]
        self._tell(f"attach {_REAL_BYTES} {rhythm.bytes}")

    def kernel(self, ms: float) -> None:
        """One kernel on all devices of all nodes, side by side; returns when the one before has ended."""
        self._tell(f"touch {ms}")

    def intact(self) -> bool:
        return all(answer["intact"] for answer in self._tell("state"))

    def end(self) -> None:
        """End them. One that is locked or parked ends when it is killed, or with its devices."""
        for one in self._all:
            if one.stdin is not None:
                one.stdin.close()

    def _tell(self, command: str) -> list[dict[str, bool]]:
        """Say it to all, then wait for all. A worker that is off the devices answers when it is on them again."""
        for one in self._all:
            assert one.stdin is not None
            try:
                one.stdin.write(command + "\n")
                one.stdin.flush()
            except BrokenPipeError as error:
                raise WorkerLost(f"worker {one.pid} has ended") from error
        return [self._answer(one) for one in self._all]

    def _answer(self, one: subprocess.Popen[str]) -> dict[str, bool]:
        assert one.stdout is not None
        line = one.stdout.readline()
        if not line:
            raise WorkerLost(f"worker {one.pid} has ended")
        answer: dict[str, bool] = json.loads(line)
        return answer


class Order(enum.Enum):
    """What is not to run for so many seconds."""

    END = enum.auto()
    MOVE = enum.auto()


class Orders:
    """What the job is told, read by a thread of its own."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._orders: deque[float | Order] = deque()
        threading.Thread(target=self._read, name="orders", daemon=True).start()

    def next(self) -> float | Order:
        """The next order: seconds to run, or another. Waits for it as long as the one who gives orders lives."""
        with self._changed:
            self._changed.wait_for(lambda: self._orders)
            return self._orders.popleft()

    def pause(self, seconds: float) -> bool:
        """Wait so long, or until there is a new order: then True."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._orders, max(seconds, 0.0)))

    def _read(self) -> None:
        for line in sys.stdin:
            match line.split():
                case ["run"]:
                    self._put(math.inf)
                case ["run", seconds]:
                    self._put(float(seconds))
                case ["move"]:
                    self._put(Order.MOVE)
                case _:
                    self._put(0.0)
        self._put(Order.END)

    def _put(self, order: float | Order) -> None:
        with self._changed:
            self._orders.append(order)
            self._changed.notify_all()


class Job:
    """The loop of the job."""

    def __init__(self, groups: list[str], places: list[list[str]], rhythm: Rhythm, random: random.Random) -> None:
        self._groups, self._places, self._rhythm, self._random = groups, places, rhythm, random
        self._orders = Orders()
        self._workers: Workers | None = None

    def serve(self, client: ts.Client) -> Order:
        """Obey orders until one that this client cannot; returns that."""
        while not isinstance(order := self._orders.next(), Order):
            self._run(client, time.monotonic() + order)
            _say(Rested(time.monotonic_ns()))
        return order

    def end(self) -> None:
        """End the workers."""
        if self._workers is not None:
            self._workers.end()

    def _run(self, client: ts.Client, until: float) -> None:
        while time.monotonic() < until:
            idle = self._rhythm.vary(self._rhythm.idle, self._random)  # sampling, elsewhere
            if self._orders.pause(min(idle, until - time.monotonic())) or time.monotonic() >= until:
                return
            try:
                self._step(client)
            except ts.TimesliceError as error:
                _say(Trouble(time.monotonic_ns(), error.reason, str(error)))
            except WorkerLost as error:
                _say(Trouble(time.monotonic_ns(), "WORKER_LOST", str(error)))
                assert self._workers is not None
                self._workers.end()
                self._workers = None

    def _step(self, client: ts.Client) -> None:
        asked = time.monotonic_ns()
        _say(Asked(asked))
        with client.accelerators(*self._groups) as turn:
            granted = time.monotonic_ns()
            tokens = dict(turn.tokens) if len(self._groups) > 1 else {}
            _say(Granted(granted, turn.token, turn.waited, turn.restored, tokens))
            if self._workers is None:
                self._workers = Workers(self._places, self._rhythm)
            workers = self._workers
            intact = workers.intact()
            busy = self._rhythm.vary(self._rhythm.busy, self._random)
            kernels = max(1, round(busy / self._rhythm.kernel))
            for _ in range(kernels):
                workers.kernel(self._rhythm.kernel * 1000)
                turn.check()
            intact = workers.intact() and intact
            yielding = time.monotonic_ns()
        _say(Yielded(time.monotonic_ns(), turn.token, asked, granted, kernels, intact, yielding, tokens))


def _say(line: Line) -> None:
    print(to_json(line), flush=True)


def main() -> None:
    """Run as the environment says: TIMESLICE_ENDPOINTS, TIMESLICE_JOB_ID, TIMESLICE_TTL."""
    default = Rhythm()
    parser = argparse.ArgumentParser(prog="python -m chaos.dev.job", description="A simulated RL job.")
    parser.add_argument("--group", action="append", required=True, help="several times: of all of them at once")
    parser.add_argument("--place", action="append", required=True, help="SOCKET,DEVICE[,DEVICE…] of a node")
    parser.add_argument("--busy", type=float, default=default.busy, help="seconds on the devices each step")
    parser.add_argument("--idle", type=float, default=default.idle, help="seconds of sampling elsewhere")
    parser.add_argument("--spread", type=float, default=default.spread, help="part by which these vary")
    parser.add_argument("--kernel", type=float, default=default.kernel, help="seconds of one kernel")
    parser.add_argument("--bytes", type=int, default=default.bytes, help="nominal bytes on each device")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rhythm = Rhythm(arguments.busy, arguments.idle, arguments.spread, arguments.kernel, arguments.bytes)
    places = [place.split(",") for place in arguments.place]
    job = Job(arguments.group, places, rhythm, random.Random(arguments.seed))
    with ts.connect() as client:
        _say(Ready(time.monotonic_ns()))
        order = job.serve(client)
    while order is Order.MOVE:
        with ts.connect() as client:
            _say(Rested(time.monotonic_ns()))
            order = job.serve(client)
    job.end()


if __name__ == "__main__":
    main()
