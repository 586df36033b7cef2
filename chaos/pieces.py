# SPDX-License-Identifier: Apache-2.0
"""A long run as pieces, one for each seed: what is still to be done, and the doing, one after another or side by side.

What results hold of the same code counts, so a run that was stopped goes on where it was. Each piece that runs beside
others is a process of its own with a world of its own.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc

from chaos.checkers import Violation
from chaos.processes import Child, ProcessTrouble
from chaos.results import Results, code_state, result_of, total
from chaos.scenarios import Report, Scenario
from ledger.etcd_server import EtcdServerError

Print = Callable[[str], None]
_SPARE_SECONDS = 600.0
"""For a piece that is over its time to finish its last fault and be judged."""

_LONGEST_SECONDS = 4 * 3600.0
"""For a piece that has a count and no time."""


class Halt:
    """That a run is to end early: asked by its scenario between faults, told to the pieces that run apart."""

    def __init__(self) -> None:
        self._set = threading.Event()
        self._told: set[Callable[[], None]] = set()

    def is_set(self) -> bool:
        return self._set.is_set()

    def set(self) -> None:
        """Once is enough."""
        if not self._set.is_set():
            self._set.set()
            for tell in tuple(self._told):
                tell()

    @contextlib.contextmanager
    def telling(self, tell: Callable[[], None]) -> Iterator[None]:
        """In the block ``tell`` is called when it is set."""

        def safely() -> None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                tell()

        self._told.add(safely)
        try:
            if self._set.is_set():
                safely()
            yield
        finally:
            self._told.discard(safely)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is to come to.

    Attributes:
        count: faults that have to count, for each seed.
        seconds: for each seed; infinite: as long as the count takes.
    """

    scenario: Scenario
    seeds: tuple[int, ...]
    count: int
    seconds: float = math.inf

    def pieces(self) -> list[Piece]:
        """All of it, whatever has been done."""
        return [Piece(self.scenario, seed, self.count, self.seconds) for seed in self.seeds]


@dataclass(frozen=True, slots=True)
class Piece:
    """What is left to do for one seed."""

    scenario: Scenario
    seed: int
    count: int
    seconds: float


def left(plan: Plan, results: Results, commit: str) -> Iterator[Piece]:
    """The pieces of the plan that the results do not hold yet. A seed with a violation is not run again."""
    for seed in plan.seeds:
        done = results.of(commit, plan.scenario.name, seed)
        if any(one.violations for one in done):
            continue
        if plan.seconds < math.inf:
            seconds = plan.seconds - sum(one.seconds for one in done)
            if seconds > 1.0:
                yield Piece(plan.scenario, seed, plan.count, seconds)
        elif not any(one.whole for one in done):
            yield Piece(plan.scenario, seed, max(plan.count - total(done).counting, 1), math.inf)


def run_here(piece: Piece, results: Results, say: Print, stop: Halt) -> Report:
    """Run it in this process, say what happens, and keep the result. What keeps it from its end is a violation."""
    scenario = piece.scenario
    commit = code_state(Path(__file__).parent)
    wanted = f"{piece.count} faults" if piece.seconds == math.inf else f"{piece.seconds / 60:.1f} minutes"
    say(f"{scenario.name}, seed {piece.seed}, {wanted}. {scenario.promise}")
    wall, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    until = began + piece.seconds
    try:
        report = scenario.run(piece.seed, piece.count, lambda line: say(f"  · {line}"), until=until, stop=stop)
    except (ProcessTrouble, EtcdServerError, TimeoutError, grpc.RpcError) as error:
        report = Report(scenario.name, piece.seed, (), (Violation("the scenario itself", f"came to no end: {error}"),))
    seconds = time.monotonic() - began
    whole = not stop.is_set()
    results.add(result_of(report, commit=commit, began=wall, seconds=seconds, whole=whole))
    for fact in report.facts:
        say(f"  {fact}")
    for violation in report.violations:
        say(f"  VIOLATED {violation}")
    verdict = "all promises held" if report.held else f"{len(report.violations)} violations"
    say(f"  {verdict}, in {seconds:.0f} s{'' if whole else ', cut short'}")
    return report


def run_all(pieces: Sequence[Piece], results: Results, say: Print, stop: Halt, workers: int = 1) -> bool:
    """Run them, ``workers`` side by side. Returns whether all promises were held."""
    if workers == 1:
        held = True
        for piece in pieces:
            if not stop.is_set():
                held = run_here(piece, results, say, stop).held and held
        return held
    with ThreadPoolExecutor(workers) as pool:
        every = [pool.submit(_run_apart, piece, results, say, stop) for piece in pieces]
        verdicts = [one.result() for one in every]
    return all(verdicts)


def _run_apart(piece: Piece, results: Results, say: Print, stop: Halt) -> bool:
    """Run it as a process; whether its promises were held. One that ends by itself without a result has failed."""
    if stop.is_set():
        return True
    name = f"{piece.scenario.name} {piece.seed}"
    command = ["-m", "chaos", "piece", piece.scenario.name, "--seed", str(piece.seed), "--count", str(piece.count)]
    command += ["--results", str(results.folder)]
    if piece.seconds < math.inf:
        command += ["--minutes", f"{piece.seconds / 60:.4f}"]
    results.folder.mkdir(parents=True, exist_ok=True)
    log = results.folder / f"{piece.scenario.name}-{piece.seed}.log"
    ended = threading.Event()
    child = Child(name, command, log, on_line=lambda line: say(f"[{piece.seed}] {line}"), on_silence=ended.set)
    child.start()
    with stop.telling(lambda: child.send(signal.SIGINT)):
        allowed = piece.seconds if piece.seconds < math.inf else _LONGEST_SECONDS
        ended.wait(allowed + _SPARE_SECONDS)
    child.kill()
    if child.exit_status not in (0, 1):
        say(f"[{piece.seed}] {name} ended with status {child.exit_status}; what it said is in {log}")
    return child.exit_status == 0
