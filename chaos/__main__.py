# SPDX-License-Identifier: Apache-2.0
"""``python -m chaos``: harm a system of real processes, and say whether its promises held."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from chaos.failpoints.registry import POINTS
from chaos.pieces import Halt, Piece, Plan, left, run_all, run_here
from chaos.results import FOLDER, Results, code_state
from chaos.scenarios import ALL, Scenario
from chaos.scenarios.points import FAILPOINTS, walk
from chaos.summary import summary

_ALSO = {"kill-replica-mid-swap": "kill-replica-mid-switch"}
"""Other words for a scenario's name."""

_EPILOG = """\
examples:
  python -m chaos list
  python -m chaos run kill-replica-mid-switch --seed 1
  python -m chaos run kill-replica-mid-switch --seeds 1-50 --workers 6
  python -m chaos run mixed --minutes 30
  python -m chaos run all --count 3
  python -m chaos report

A run that is stopped by Ctrl-C finishes its fault, keeps what it has seen, and goes on from there when it is started
again: results of the same commit and seed count. A changed file is other code, and starts anew.

exit status:
  0 every promise held    1 one did not    2 wrong arguments
"""


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    chosen = _parser().parse_args(arguments)
    match chosen.command:
        case "list":
            for one in ALL:
                print(f"{one.name:26}{one.count:3} faults   {one.promise}")
            return 0
        case "report":
            return _report(chosen)
        case "piece":
            return _piece(chosen)
        case "failpoints":
            return _failpoints(chosen)
        case _:
            return _run(chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chaos",
        description="Scenarios that harm a system of real processes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="say which scenarios there are")
    names = [one.name for one in ALL]

    run = commands.add_parser("run", help="run one, or all")
    run.add_argument(
        "scenario",
        type=lambda name: _ALSO.get(name, name),
        choices=[*names, "all"],
        metavar="SCENARIO",
        help="a name from the list, or all",
    )
    run.add_argument(
        *("--seed", "--seeds"),
        dest="seeds",
        type=_seeds,
        default=(1,),
        metavar="N[,N|,N-M…]",
        help="of the random choices, each a world of its own (default: 1)",
    )
    run.add_argument("--count", type=_positive, metavar="C", help="faults that have to count, for each seed")
    run.add_argument("--minutes", type=float, metavar="M", help="of all seeds together, instead of a count")
    run.add_argument("--workers", type=_positive, default=1, metavar="W", help="seeds side by side (default: 1)")
    run.add_argument("--again", action="store_true", help="also what the results hold already")

    # One seed, as a process of its own: how --workers runs it.
    piece = commands.add_parser("piece")
    piece.add_argument("scenario", choices=names)
    piece.add_argument("--seed", type=int, required=True)
    piece.add_argument("--count", type=_positive, required=True)
    piece.add_argument("--minutes", type=float)

    points = commands.add_parser("failpoints", help="kill a process at every named point, and print a table")
    points.add_argument("--only", default="*", metavar="GLOB", help="points whose names are like this")
    points.add_argument("--seed", type=int, default=1, help="of their order (default: 1)")
    points.add_argument("--list", action="store_true", help="say which there are, and end")

    report = commands.add_parser("report", help="add up what runs have shown")
    report.add_argument("--all", action="store_true", help="of every state of the code, not only of the present one")
    for one in (run, piece, points, report):
        one.add_argument(
            "--results", type=Path, default=FOLDER, metavar="FOLDER", help="where they are kept (default: %(default)s)"
        )
    return parser


def _run(chosen: argparse.Namespace) -> int:
    results = Results(chosen.results)
    commit = code_state(Path(__file__).parent)
    seconds = float("inf") if chosen.minutes is None else chosen.minutes * 60 / len(chosen.seeds)
    pieces: list[Piece] = []
    scenarios = ALL if chosen.scenario == "all" else (_named(chosen.scenario),)
    for scenario in scenarios:
        plan = Plan(scenario, chosen.seeds, chosen.count or _count(scenario, chosen.minutes), seconds)
        pieces += plan.pieces() if chosen.again else left(plan, results, commit)
        had = results.of(commit, scenario.name)
        if had and not chosen.again:
            print(f"{scenario.name}: the results hold {len(had)} runs of this code already; they count.", flush=True)
    stop = _halt()
    held = run_all(pieces, results, _say, stop, chosen.workers)
    names = {one.name for one in scenarios}
    shown = [one for one in results.read() if one.commit == commit and one.scenario in names]
    for line in summary(shown):
        print(line)
    return 0 if held and not any(one.violations for one in shown) else 1


def _piece(chosen: argparse.Namespace) -> int:
    seconds = float("inf") if chosen.minutes is None else chosen.minutes * 60
    piece = Piece(_named(chosen.scenario), chosen.seed, chosen.count, seconds)
    return 0 if run_here(piece, Results(chosen.results), _say, _halt()).held else 1


def _failpoints(chosen: argparse.Namespace) -> int:
    points = [one for one in POINTS if fnmatch(one.name, chosen.only)]
    if chosen.list or not points:
        for one in points:
            print(f"{one.name:32}{one.party.name:16}{one.traffic.value}")
        return 0 if points else 2
    scenario = replace(FAILPOINTS, body=lambda run: walk(run, points))
    piece = Piece(scenario, chosen.seed, len(points), float("inf"))
    return 0 if run_here(piece, Results(chosen.results), _say, _halt()).held else 1


def _report(chosen: argparse.Namespace) -> int:
    commit = code_state(Path(__file__).parent)
    every = Results(chosen.results).read()
    shown = every if chosen.all else [one for one in every if one.commit == commit]
    if not shown:
        print(f"no results of {commit} in {chosen.results}; {len(every)} of other code: --all shows them")
    for line in summary(shown):
        print(line)
    return 1 if any(one.violations for one in shown) else 0


def _halt() -> Halt:
    """Set by the first Ctrl-C or SIGTERM; a second one ends the program as usual."""
    stop = Halt()

    def asked(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
        print("stops after the fault in hand; once more: at once", file=sys.stderr, flush=True)
        stop.set()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, asked)
        signal.signal(signal.SIGTERM, asked)
    return stop


def _count(scenario: Scenario, minutes: float | None) -> int:
    """The scenario's own; as many as there is time for, where a time is given and nothing else."""
    return scenario.count if minutes is None or scenario.paced else sys.maxsize


def _named(name: str) -> Scenario:
    return next(one for one in ALL if one.name == name)


def _say(line: str) -> None:
    print(line, flush=True)


def _seeds(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        found += range(int(first), int(last) + 1) if dash else [int(first)]
    if not found:
        raise argparse.ArgumentTypeError(f"{text}: no seeds")
    return tuple(dict.fromkeys(found))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("has to be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
