# SPDX-License-Identifier: Apache-2.0
"""``python -m chaos.explore``: search one model, or by default a set of them, and say what was seen."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial

from chaos.explore.coverage import Ways, together
from chaos.explore.faults import FAULTS
from chaos.explore.pairs import pairs
from chaos.explore.search import Progress, Result, explore, odds
from chaos.explore.sets import SETS
from chaos.explore.size import Size

SYMMETRY = """\
Of states that differ only in which job, which node or which replica is which, one is searched: replicas have no
names, jobs and nodes of one kind (priority, part in the specs) may change places. Counts are of what is left then.
Nor is one that was found before with as many faults left, nor a decision in hand that would be made anew: that is
decided and written in one step. Kept of a state that is done are 8 bytes of a hash and the 8 bytes of the one it was
reached from; each run prints the odds that two states had one hash, and one was left out. What a search that ends at
--max-states says holds for the states that it has seen; whether all comes to rest it does not say.
"""

EXAMPLES = """\
examples:
  python -m chaos.explore                                  the set that the tests of every change run
  python -m chaos.explore --fault expire --fault refuse=2  one model: a session ends, a node refuses twice
  python -m chaos.explore --jobs 3 --nodes 2 --replicas 2  larger, with the usual faults: see --max-states, --workers
  python -m chaos.explore --jobs 2 --nodes 3 --replicas 2
  python -m chaos.explore --pairs --nodes 1 --prompt       each two faults together: some five hundred models
"""

USUAL = (("expire", 1), ("restart", 1), ("crash", 1), ("repeat", 1))
"""The faults of a model for which none are named and which is larger than two by two."""


PATIENCE = 20_000
"""In a model that is asked for by itself, after so many calls of the core in a row without a new way none is traced."""


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if everything was searched and nothing is broken, 1 for a violation, 2 if the limit was reached.

    3, of the set alone: nothing is broken, but ways through the decision core were not taken: nobody knows of those.
    """
    parser = _parser()
    chosen = parser.parse_args(arguments)
    size = _size(parser, chosen)
    failed, states, steps, calls, traced, began = 0, 0, 0, 0, 0, time.monotonic()
    ways: list[Ways] = []
    if chosen.pairs:
        results = _beside(list(pairs(size or Size())), chosen)
    else:
        results = _all(chosen) if size is None else iter([(size, _one(size, chosen, PATIENCE))])
    for of, result in results:
        _report(of, result)
        states, steps = states + result.states, steps + result.transitions
        calls, traced = calls + result.calls, traced + result.traced
        if result.violation or (not result.whole and not failed):
            failed = 1 if result.violation else 2
        ways += result.ways
    print(f"together {states:,} states, {steps:,} steps, {time.monotonic() - began:.1f} s")
    files = together(ways)
    untaken = size is None and not chosen.pairs and any(one.missed for one in files)
    how = "by tracing" if calls == traced else f"by tracing {traced:,} of {calls:,} calls"
    _covered(files, how, named=chosen.missed or untaken)
    return failed or (3 if untaken else 0)


def _parser() -> argparse.ArgumentParser:
    faults = "faults:\n" + "\n".join(f"  {name:11}{what}" for name, what in FAULTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m chaos.explore",
        description="Search every state of a small group that runs the production decision core and agent.",
        epilog=f"{faults}\n\n{SYMMETRY}\n{EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jobs", type=int, choices=range(1, 5), help="default 2")
    parser.add_argument("--nodes", type=int, choices=range(1, 5), help="default 2")
    parser.add_argument("--replicas", type=int, choices=range(1, 4), help="default 1")
    parser.add_argument("--fault", action="append", default=[], metavar="NAME[=TIMES]", help="may be given again")
    parser.add_argument("--pairs", action="store_true", help="instead of --fault: a model for each two faults")
    parser.add_argument("--lasting", action="store_true", help="a node's fault comes to stay: nothing may spin")
    parser.add_argument("--priorities", metavar="N,…", help="of the jobs, in order")
    parser.add_argument("--specs", metavar="N,…/N,…", help="the numbers of the nodes of each spec in turn")
    parser.add_argument("--prompt", action="store_true", help="agents note at once what has changed on their devices")
    parser.add_argument(
        "--no-os-locks", action="store_true", help="a new agent does not wait for the old one's helpers"
    )
    parser.add_argument("--every-name", action="store_true", help="search also what differs by names alone")
    parser.add_argument("--max-states", type=int, default=5_000_000, help="end the search of one model there")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--missed", action="store_true", help="name the ways of the core that were never taken")
    return parser


def _size(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> Size | None:
    """The one model that is asked for; None: the set."""
    faults: dict[str, int] = {}
    for one in chosen.fault:
        name, _, times = one.partition("=")
        if name not in FAULTS or (times and not times.isdigit()):
            parser.error(f"--fault {one}: there are {', '.join(FAULTS)}; a number of times may follow, as in expire=2")
        faults[name] = int(times or 1)
    if chosen.pairs and (faults or chosen.specs):
        parser.error("--pairs chooses faults and specs itself; leave out --fault and --specs")
    jobs, nodes, replicas = chosen.jobs or 2, chosen.nodes or 2, chosen.replicas or 1
    named = any((chosen.jobs, chosen.nodes, chosen.replicas, faults, chosen.lasting, chosen.priorities, chosen.specs))
    if not (named or chosen.prompt or chosen.no_os_locks or chosen.every_name):
        return None
    large = jobs * nodes * replicas > 8 and not faults and not chosen.pairs
    try:
        priorities = tuple(int(one) for one in chosen.priorities.split(",")) if chosen.priorities else ()
        specs = chosen.specs.split("/") if chosen.specs else []
        generations = tuple(tuple(int(one) - 1 for one in spec.split(",")) for spec in specs)
    except ValueError as error:
        parser.error(str(error))
    if (priorities and len(priorities) != jobs) or any(not 0 <= one < nodes for spec in generations for one in spec):
        parser.error("--priorities has one number for each job, --specs has numbers from 1 to that of --nodes")
    return Size(
        jobs,
        nodes,
        replicas,
        USUAL if large else tuple(faults.items()),
        chosen.lasting,
        generations,
        priorities,
        fence=not chosen.no_os_locks,
        prompt=chosen.prompt or large,
        symmetry=not chosen.every_name,
    )


def _one(size: Size, chosen: argparse.Namespace, patience: int = 0) -> Result:
    """One model, by all the workers."""
    gc.disable()  # nothing here is a cycle, and the collector would walk all of the states again and again
    return explore(size, max_states=chosen.max_states, workers=chosen.workers, patience=patience, progress=_progress())


def _all(chosen: argparse.Namespace) -> Iterator[tuple[Size, Result]]:
    """The set: the first and largest by all the workers, then a model to each of them."""
    yield SETS[0], _one(SETS[0], chosen)
    yield from _beside(SETS[1:], chosen)


def _beside(sizes: Sequence[Size], chosen: argparse.Namespace) -> Iterator[tuple[Size, Result]]:
    """Many small models, each by one worker."""
    with ProcessPoolExecutor(min(chosen.workers, len(sizes))) as pool:
        asked = {pool.submit(partial(_alone, limit=chosen.max_states), size): size for size in sizes}
        for done in as_completed(asked):
            yield asked[done], done.result()


def _alone(size: Size, limit: int) -> Result:
    gc.disable()
    return explore(size, max_states=limit)


def _progress() -> Progress:
    last = [time.monotonic()]

    def tell(found: int, done: int, depth: int) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() or now - last[0] >= 10:
            end = "\r" if sys.stderr.isatty() else "\n"
            print(f"  {found:,} states, {done:,} looked into, depth {depth}", end=end, file=sys.stderr, flush=True)
            last[0] = now

    return tell


def _report(size: Size, result: Result) -> None:
    how = "searched whole" if result.whole else "not searched whole"
    print(
        f"{size.describe()}: {how}, {result.states:,} states, {result.transitions:,} steps, depth {result.depth}, "
        f"{result.at_rest:,} at rest, {result.asked:,} questions to the core, {result.situations:,} situations of "
        f"agents, hash collision < {odds(result.states, size):.0e}, {result.seconds:.1f} s",
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


def _covered(files: list[Ways], how: str, *, named: bool) -> None:
    """What the search never takes, it says nothing about."""
    taken, possible = sum(len(one.taken) for one in files), sum(len(one.possible) for one in files)
    print(
        f"ways through the decision core that were taken, {how} (lines, and branches into and past their bodies): "
        f"{taken} of {possible}, {100 * taken / possible:.1f} %; "
        f"{sum(one.exhausted for one in files)} matches name every case there is"
    )
    for one in files:
        tail = f"; never: {', '.join(one.missed)}" if named and one.missed else ""
        print(f"  {one.name:15} {len(one.taken):4} of {len(one.possible):4}{tail}")


if __name__ == "__main__":
    sys.exit(main())
