# SPDX-License-Identifier: Apache-2.0
"""One hand-off, drawn as a waterfall: ``python -m bench.waterfall [--processes] [--svg FILE]``.

Every process of a small system notes when it passes each of its failpoints (`ledger.failpoint`), by the one clock that
they share. Hand-offs that passed the same points are laid over one another: a point is where the median of them passed
it. What lies between a point and the one before it counts for the party that passed it: its own time, and that of whom
it had waited for. Noting a point is one write; a hand-off has thirty to sixty.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median

import tsclient as ts
from chaos.processes import Child
from chaos.world import Shape, World
from ledger.failpoint import ENVIRONMENT

_WITHIN = 60.0
_BEGIN, _END = "job.yield.called", "job.acquire.returned"
_ASIDE = ("client.beat", "replica.beat", "ledger.lease", "agent.record")
"""What goes on beside a hand-off, not for it."""

_WIDTH = 48
_ROW, _LEFT = 18, 330
_COLOURS = {"job": "#888", "client": "#d95f02", "replica": "#7570b3", "agent": "#1b9e77", "agent_helper": "#66a61e"}


@dataclass(frozen=True, slots=True)
class Passed:
    """A point that was passed. ``at``: ns of CLOCK_MONOTONIC."""

    at: int
    name: str

    @property
    def party(self) -> str:
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the waterfall: ``took`` ms until the point ``name``, which is passed ``at`` ms."""

    name: str
    at: float
    took: float

    @property
    def party(self) -> str:
        return self.name.partition(".")[0]


def read(lines: Iterable[str]) -> list[Passed]:
    """What was noted, in the order of time."""
    noted = (line.split() for line in lines)
    return sorted((Passed(int(at), name) for at, _, name in noted), key=lambda one: one.at)


def hand_offs(passed: Iterable[Passed]) -> Iterator[list[Passed]]:
    """The points of each hand-off, from the call of yield until the other's acquire has returned."""
    course: list[Passed] | None = None
    for one in passed:
        if one.name == _BEGIN:
            course = []
        if course is not None and not one.name.startswith(_ASIDE):
            course.append(one)
        if one.name == _END and course is not None:
            yield course
            course = None


def lay_over(courses: Iterable[Sequence[Passed]]) -> tuple[list[Row], int]:
    """The medians of the hand-offs that passed most commonly the same points, and of how many those are.

    Raises ValueError where there is none.
    """
    alike: defaultdict[frozenset[tuple[str, int]], list[dict[tuple[str, int], float]]] = defaultdict(list)
    for course in courses:
        times = {which: (one.at - course[0].at) / 1e6 for which, one in _numbered(course)}
        alike[frozenset(times)].append(times)
    if not alike:
        raise ValueError("no hand-off was noted")
    same = max(alike.values(), key=len)
    medians = sorted((median(times[which] for times in same), which[0]) for which in same[0])
    before = (0.0, *(at for at, _ in medians))
    return [Row(name, at, at - since) for (at, name), since in zip(medians, before, strict=False)], len(same)


def _numbered(course: Sequence[Passed]) -> Iterator[tuple[tuple[str, int], Passed]]:
    """Each with its name and how often that was passed before."""
    seen: Counter[str] = Counter()
    for one in course:
        yield (one.name, seen[one.name]), one
        seen[one.name] += 1


def text(rows: Sequence[Row]) -> Iterator[str]:
    """The waterfall in characters, and what each party took."""
    whole = rows[-1].at or 1.0
    yield f"{'at ms':>7} {'took':>6}  point passed"
    for row in rows:
        begin = round((row.at - row.took) / whole * _WIDTH)
        length = max(round(row.took / whole * _WIDTH), 1)
        yield f"{row.at:7.2f} {row.took:6.2f}  {row.name:32} {' ' * begin}{'█' * length}"
    for party, took in shares(rows):
        yield f"{took:14.2f}  {took / whole:4.0%}  {party}"


def shares(rows: Sequence[Row]) -> list[tuple[str, float]]:
    """Each party's milliseconds, the most first."""
    found: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        found[row.party] += row.took
    return sorted(found.items(), key=lambda one: -one[1])


def svg(rows: Sequence[Row]) -> str:
    """The waterfall as a picture."""
    scale = (1000 - _LEFT) / (rows[-1].at or 1.0)
    bars = []
    for number, row in enumerate(rows):
        top, begin = number * _ROW, _LEFT + (row.at - row.took) * scale
        label = f"{row.took:.2f} ms  {row.name}"
        bars.append(
            f'<text x="{_LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(label)}</text>'
            f'<rect x="{begin:.1f}" y="{top + 3}" width="{max(row.took * scale, 1):.1f}" height="{_ROW - 6}"'
            f' fill="{_COLOURS.get(row.party, "#000")}"><title>{escape(label)} at {row.at:.2f} ms</title></rect>'
        )
    size = f'width="1010" height="{len(rows) * _ROW + 8}" font-family="monospace" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(bars)}</svg>'


class _Noted:
    """The file that all processes append to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, name: str) -> None:
        os.write(self._file, f"{time.monotonic_ns()} {os.getpid()} {name}\n".encode())


def measure(rounds: int, *, processes: bool) -> list[Passed]:
    """Hand a turn to and fro between two jobs, on one node and by one replica, and return what was noted."""
    with tempfile.TemporaryDirectory(prefix="timeslice-waterfall-") as folder, ExitStack() as stack:
        noted = _Noted(Path(folder) / "passed")
        # Their own processes, and the helpers of this process's clients.
        os.environ[ENVIRONMENT] = f"+{noted.path}"
        stack.callback(os.environ.pop, ENVIRONMENT)
        world = stack.enter_context(World(shape=Shape(bandwidth=1e15, latency=0.0)))
        clients = [stack.enter_context(ts.connect(world.endpoints, job=f"job-{side}")) for side in ("a", "b")]
        pool = stack.enter_context(ThreadPoolExecutor(1))
        turn = clients[0].acquire(world.group, timeout=_WITHIN)
        if processes:
            for _ in clients:
                stack.callback(_attach(world, turn.job).kill)
                turn = _hand_off(world, clients, turn, pool, noted)
        for _ in range(rounds):
            turn = _hand_off(world, clients, turn, pool, noted)
        turn.yield_()
        return read(noted.path.read_text(encoding="ascii").splitlines())


def _hand_off(
    world: World, clients: list[ts.Client], turn: ts.Turn, pool: ThreadPoolExecutor, noted: _Noted
) -> ts.Turn:
    queued = threading.Event()

    def wait(client: ts.Client) -> ts.Turn:
        got = client.acquire(world.group, timeout=_WITHIN, on_progress=lambda _: queued.set())
        noted.note(_END)
        return got

    other = pool.submit(wait, clients[1])
    if not queued.wait(_WITHIN):
        raise TimeoutError("nobody was queued")
    noted.note(_BEGIN)
    turn.yield_()
    clients.reverse()
    return other.result(_WITHIN)


def _attach(world: World, job: str) -> Child:
    """A process of the job with 64 bytes on the device."""
    (node,) = world.nodes
    child = Child(
        f"worker of {job}",
        ("-m", "chaos.dev.worker", str(node.socket), *node.devices),
        world.folder / f"worker-{job}.log",
        environment={"TIMESLICE_JOB_ID": job, "TIMESLICE_GROUP": world.group},
        ready="^{}",
    )
    child.start()
    child.write("attach 64 64")
    child.wait_ready(_WITHIN)
    return child


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(prog="python -m bench.waterfall", description="One hand-off, step by step.")
    parser.add_argument("--rounds", type=int, default=100, help="hand-offs (default: %(default)s)")
    parser.add_argument("--processes", action="store_true", help="each job has a process on the device")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw it there, too")
    arguments = parser.parse_args()
    passed = measure(arguments.rounds, processes=arguments.processes)
    rows, alike = lay_over(hand_offs(passed))
    for line in text(rows):
        print(line)
    print(f"{alike} hand-offs passed these points")
    if arguments.svg:
        arguments.svg.write_text(svg(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
