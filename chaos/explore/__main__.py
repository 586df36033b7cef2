# SPDX-License-Identifier: Apache-2.0
"""``python -m chaos.explore``: search one model, or by default a set of them, and say what was seen."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from chaos.explore.bridge import Core
from chaos.explore.coverage import Coverage, Lines
from chaos.explore.faults import FAULTS, LASTING
from chaos.explore.search import Result, explore
from chaos.explore.world import Size, World

SETS: tuple[Size, ...] = (
    Size(replicas=2, faults=(("expire", 1), ("restart", 1), ("crash", 1))),
    Size(faults=(("die", 1), ("pause", 1))),
    Size(faults=(("restart", 1), ("away", 1), ("refuse", 1))),
    Size(faults=(("evict", 1), ("unrestored", 1))),
    Size(faults=(("restored", 1),)),
    Size(faults=(("expire", 1), ("resist", 1)), lasting=True),
    Size(faults=(("expire", 1), ("unsaved", 1)), lasting=True),
    Size(faults=(("cancel", 1), ("unfit", 1))),
    Size(faults=(("slow", 1), ("refuse", 1))),
    Size(faults=(("restart", 1), ("away", 1), ("drop", 1))),
    *(Size(faults=((fault, 2),), lasting=True) for fault in sorted(LASTING)),
    Size(jobs=3, nodes=1),
)
"""Searched when nothing is asked for by name: together they have every fault, and each of them is searched whole."""

EXAMPLES = """
examples:
  python -m chaos.explore                                  the set that the tests of every change run
  python -m chaos.explore --fault expire --fault refuse=2  one model: a session ends, a node refuses twice
  python -m chaos.explore --jobs 3 --nodes 1 --fault evict
  python -m chaos.explore --replicas 2 --every-order --fault restart
"""


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if everything was searched and nothing is broken, 1 for a violation, 2 if the limit was reached."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos.explore",
        description="Search every state of a small group that runs the production decision core.",
        epilog="faults:\n" + "\n".join(f"  {name:11}{what}" for name, what in FAULTS.items()) + "\n" + EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jobs", type=int, default=2, choices=range(1, 5))
    parser.add_argument("--nodes", type=int, default=2, choices=range(1, 5))
    parser.add_argument("--replicas", type=int, default=1, choices=range(1, 4))
    parser.add_argument("--fault", action="append", default=[], metavar="NAME[=TIMES]", help="may be given again")
    parser.add_argument("--every-order", action="store_true", help="search also orders that nobody can tell apart")
    parser.add_argument("--lasting", action="store_true", help="a node's fault comes to stay: nothing may spin")
    parser.add_argument("--max-states", type=int, default=5_000_000, help="end the search of one model there")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="models that are searched at once")
    parser.add_argument("--missed", action="store_true", help="name the lines of the core that were never run")
    chosen = parser.parse_args(arguments)
    alone = (
        chosen.fault
        or chosen.every_order
        or chosen.lasting
        or (chosen.jobs, chosen.nodes, chosen.replicas) != (2, 2, 1)
    )
    sizes = (_size(parser, chosen),) if alone else SETS
    workers = min(chosen.workers, len(sizes))
    run: dict[str, set[int]] = {}
    failed, states, steps, began = 0, 0, 0, time.monotonic()
    with ProcessPoolExecutor(workers) as pool:
        for size, search in zip(sizes, pool.map(partial(_search, limit=chosen.max_states), sizes), strict=True):
            _report(size, search)
            result = search.result
            states, steps = states + result.states, steps + result.transitions
            failed = failed or (1 if result.violation else 0 if result.whole else 2)
            for lines in search.lines:
                run.setdefault(lines.name, set()).update(lines.run)
    print(f"together {states:,} states, {steps:,} steps, {time.monotonic() - began:.1f} s")
    _covered([Lines(lines.name, lines.possible, frozenset(run[lines.name])) for lines in Coverage().lines()], chosen)
    return failed


@dataclass(frozen=True, slots=True)
class _Search:
    result: Result
    asked: int
    lines: list[Lines]


def _search(size: Size, limit: int) -> _Search:
    """One model, in a process of its own."""
    gc.disable()  # nothing here is a cycle, and the collector would walk all of the states again and again
    coverage = Coverage()
    plain = World(size)
    world = World(size, Core(plain.jobs, plain.nodes, coverage.call))
    result = explore(world, max_states=limit, progress=_progress)
    return _Search(result, world.core.asked, coverage.lines())


def _size(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> Size:
    faults: dict[str, int] = {}
    for one in chosen.fault:
        name, _, times = one.partition("=")
        if name not in FAULTS or (times and not times.isdigit()):
            parser.error(f"--fault {one}: there are {', '.join(FAULTS)}; a number of times may follow, as in expire=2")
        faults[name] = int(times or 1)
    return Size(chosen.jobs, chosen.nodes, chosen.replicas, tuple(faults.items()), chosen.every_order, chosen.lasting)


def _describe(size: Size) -> str:
    faults = ", ".join(f"{name} x {times}" if times > 1 else name for name, times in size.faults) or "no faults"
    lasting = ", to stay" if size.lasting else ""
    return f"{size.jobs} jobs, {size.nodes} nodes, {size.replicas} replicas; {faults}{lasting}"


def _progress(found: int, done: int, depth: int) -> None:
    if sys.stderr.isatty():
        print(f"  {done:,} of {found:,} states, depth {depth}", end="\r", file=sys.stderr, flush=True)


def _report(size: Size, search: _Search) -> None:
    result = search.result
    print(
        f"{_describe(size)}: {'searched whole' if result.whole else 'not searched whole'}, {result.states:,} states, "
        f"{result.transitions:,} steps, depth {result.depth}, {result.at_rest} at rest, "
        f"{search.asked:,} questions to the core, {result.seconds:.1f} s",
        flush=True,
    )
    if result.violation is None:
        return
    print(f"\nBROKEN: {result.violation.what}\nThe shortest way there:")
    for number, step in enumerate(result.violation.trace, 1):
        print(f"{number:4}  {step}")
    if result.violation.state is not None:
        print("\nThere:")
        for name, value in result.violation.state._asdict().items():
            print(f"  {name}: {value}")


def _covered(files: list[Lines], chosen: argparse.Namespace) -> None:
    """What the search never runs, it says nothing about."""
    run = sum(len(one.run & one.possible) for one in files)
    possible = sum(len(one.possible) for one in files)
    print(f"lines of the decision core that were run, by tracing: {run} of {possible}")
    for one in files:
        tail = f"; never: {', '.join(map(str, one.missed))}" if chosen.missed and one.missed else ""
        print(f"  {one.name:15} {len(one.run & one.possible):4} of {len(one.possible):4}{tail}")


if __name__ == "__main__":
    sys.exit(main())
