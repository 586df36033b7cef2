# SPDX-License-Identifier: Apache-2.0
"""``python -m chaos``: harm a system of real processes, and say whether its promises held."""

from __future__ import annotations

import argparse
import sys
import time

from chaos.scenarios import ALL, Report, Scenario

_EPILOG = """\
examples:
  python -m chaos list
  python -m chaos run kill-replica-mid-switch --seed 1
  python -m chaos run kill-holder --seed 1,2,3 --count 5
  python -m chaos run all --count 3

exit status:
  0 every promise held    1 one did not    2 wrong arguments
"""


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos",
        description="Scenarios that harm a system of real processes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="say which scenarios there are")
    run = commands.add_parser("run", help="run one, or all")
    names = [one.name for one in ALL]
    run.add_argument("scenario", choices=[*names, "all"], metavar="SCENARIO", help="a name from the list, or all")
    run.add_argument("--seed", type=_seeds, default=(1,), metavar="N[,N…]", help="of the random choices (default: 1)")
    run.add_argument("--count", type=_positive, metavar="K", help="faults that have to count (default: see the list)")
    chosen = parser.parse_args(arguments)
    if chosen.command == "list":
        for one in ALL:
            print(f"{one.name:26}{one.count:3} faults   {one.promise}")
        return 0
    wanted = ALL if chosen.scenario == "all" else tuple(one for one in ALL if one.name == chosen.scenario)
    reports = [_run(one, seed, chosen.count or one.count) for one in wanted for seed in chosen.seed]
    return 0 if all(report.held for report in reports) else 1


def _run(scenario: Scenario, seed: int, count: int) -> Report:
    print(f"{scenario.name}, seed {seed}, {count} faults. {scenario.promise}", flush=True)
    began = time.monotonic()
    report = scenario.run(seed, count, lambda line: print(f"  · {line}", flush=True))
    for fact in report.facts:
        print(f"  {fact}")
    for violation in report.violations:
        print(f"  VIOLATED {violation}")
    verdict = "all promises held" if report.held else f"{len(report.violations)} violations"
    print(f"  {verdict}, in {time.monotonic() - began:.0f} s", flush=True)
    return report


def _seeds(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(","))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("has to be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
