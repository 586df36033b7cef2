# SPDX-License-Identifier: Apache-2.0
"""``python -m chaos.mutants``: plant each bug, run what has to notice it, and say what did."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chaos.mutants import run
from chaos.mutants.catalog import ALL
from chaos.mutants.edit import DoesNotApply
from chaos.mutants.mutant import Mutant
from chaos.mutants.run import Outcome, plant

_EPILOG = """\
exit status:
  0 every bug was noticed    1 one was not, or could not be planted    2 wrong arguments
"""


def main(arguments: list[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m chaos.mutants",
        description="Bugs that are planted in a copy of this tree, to see that each is noticed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="bugs to plant (default: all)")
    parser.add_argument("--list", action="store_true", help="name them, and plant none")
    parser.add_argument("--workers", type=int, default=2, help="bugs at the same time (default: 2)")
    parser.add_argument("--control", action="store_true", help="first see that no check breaks without a bug")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table to this file, if all were noticed")
    chosen = parser.parse_args(arguments)
    known = {one.name: one for one in ALL}
    if unknown := [name for name in chosen.names if name not in known]:
        parser.error(f"no such bug: {', '.join(unknown)}; there are {', '.join(known)}")
    mutants = [known[name] for name in chosen.names] or list(ALL)
    if chosen.list:
        for one in mutants:
            print(f"{one.name:34}{one.what}")
        return 0
    if chosen.control and not _sound(mutants):
        return 1
    began = time.monotonic()
    outcomes: list[Outcome] = []
    for one, outcome in _planted(mutants, chosen.workers):
        if isinstance(outcome, DoesNotApply):
            print(f"NOT PLANTED {one.name}: {outcome}", flush=True)
            continue
        outcomes.append(outcome)
        verdict = f"caught by {one.catch}: {outcome.found}" if outcome.caught else f"NOT CAUGHT by {one.catch}"
        print(f"{one.name} ({outcome.seconds:.0f} s): {verdict}", flush=True)
        if not outcome.caught:
            print("    " + outcome.said.strip().replace("\n", "\n    "), flush=True)
    caught = [one for one in outcomes if one.caught]
    print(f"{len(caught)} of {len(mutants)} planted bugs were caught, in {time.monotonic() - began:.0f} s")
    if len(caught) < len(mutants):
        return 1
    if chosen.write is not None:
        chosen.write.write_text(table(outcomes), encoding="utf-8")
    return 0


def table(outcomes: Sequence[Outcome]) -> str:
    """The document: what each bug is and what noticed it."""
    lines = [
        "# Planted bugs",
        "",
        f"{len(outcomes)} bugs, each planted alone in a copy of the tree, and each caught. `make mutants` plants them",
        "all again and writes this page; `python -m chaos.mutants NAME` plants one.",
        "",
        "| bug | what it does | caught by | what that said |",
        "|---|---|---|---|",
    ]
    for one in outcomes:
        bug, found = one.mutant, one.found.replace("|", "\\|")
        what = bug.what + (f" {bug.behind}" if bug.behind else "")
        lines.append(f"| {bug.name} | {what} | {bug.catch} | {found} |")
    return "\n".join(lines) + "\n"


def _planted(mutants: Sequence[Mutant], workers: int) -> Iterator[tuple[Mutant, Outcome | DoesNotApply]]:
    def one(mutant: Mutant) -> Outcome | DoesNotApply:
        try:
            return plant(mutant)
        except DoesNotApply as error:
            return error

    with ThreadPoolExecutor(workers) as pool:
        yield from zip(mutants, pool.map(one, mutants), strict=True)


def _sound(mutants: Sequence[Mutant]) -> bool:
    broken = False
    for catch in dict.fromkeys(one.catch for one in mutants):
        if said := run.control(catch):
            print(f"BROKEN WITHOUT A BUG: {catch}\n    " + said.strip().replace("\n", "\n    "), flush=True)
            broken = True
    return not broken


if __name__ == "__main__":
    sys.exit(main())
