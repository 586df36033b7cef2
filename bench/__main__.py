# SPDX-License-Identifier: Apache-2.0
"""``python -m bench run [PART …]`` measures, ``python -m bench compare BASE NOW`` sets two runs beside each other."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

from bench import report
from bench.figures import Found
from bench.machine import describe
from bench.measure import TooShort
from bench.parts import PARTS, measure
from bench.settings import FULL, QUICK, Settings
from bench.system import Bench

_EXAMPLES = """\
examples:
  python -m bench run                    all parts, sized for sixteen cores
  python -m bench run --quick            all parts, sized for two cores: about three minutes
  python -m bench run b d --json now.json
  python -m bench compare base.json now.json

exit status: 0; with --strict 1 if something that was promised does not hold
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="command")
    parts = "\n".join(f"  {letter}  {what}" for letter, what in PARTS.items())
    run = commands.add_parser(
        "run", help="measure", description=f"parts:\n{parts}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    run.add_argument("parts", nargs="*", metavar="PART", help="which (default: all)")
    run.add_argument("--quick", action="store_true", help="sizes for two cores")
    run.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    run.add_argument("--strict", action="store_true", help="exit with 1 if something promised does not hold")
    run.add_argument("--fsync", action="store_true", help="etcd writes to the disk before it answers")
    run.add_argument("--logs", type=Path, metavar="DIR", help="keep the logs of all processes there")
    for field in dataclasses.fields(Settings):
        if field.name == "duty":
            run.add_argument("--duty", type=_shape, nargs="+", metavar="JOBS:SHARE", help="(default: six of them)")
            continue
        many = field.type.startswith("tuple") if isinstance(field.type, str) else False
        kind = int if "int" in str(field.type) else float
        option = f"--{field.name.replace('_', '-')}"
        if many:
            run.add_argument(option, type=kind, nargs="+", help=f"(default: {getattr(FULL, field.name)})")
        else:
            run.add_argument(option, type=kind, help=f"(default: {getattr(FULL, field.name)})")
    compare = commands.add_parser("compare", help="set two runs beside each other")
    compare.add_argument("base", type=Path, help="JSON of an earlier run")
    compare.add_argument("now", type=Path, help="JSON of a later one")
    show = commands.add_parser("show", help="print a run as Markdown")
    show.add_argument("run", type=Path, help="its JSON")
    return parser


def _shape(text: str) -> tuple[int, float]:
    """Raises ValueError, as argparse wants it."""
    jobs, _, share = text.partition(":")
    return int(jobs), float(share)


def _settings(arguments: argparse.Namespace) -> Settings:
    given = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(Settings)}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    base = QUICK if arguments.quick else FULL
    return dataclasses.replace(base, **{name: value for name, value in given.items() if value is not None})


def _run(arguments: argparse.Namespace) -> int:
    unknown = set(arguments.parts) - PARTS.keys()
    if unknown:
        print(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    settings = _settings(arguments)
    began = time.monotonic()
    found: list[Found] = []
    with Bench(fsync=arguments.fsync, folder=arguments.logs) as bench:
        machine = describe(str(bench.etcd.binary.version))
        print(f"{machine.processor}, {machine.cores} cores, load {machine.load:.1f}, kernel {machine.kernel}")
        packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
        fsync = "with" if arguments.fsync else "without"
        print(f"Python {machine.python}, etcd {machine.etcd} {fsync} fsync, {packages}, commit {machine.commit}")
        for one in measure(bench, settings, arguments.parts or PARTS):
            found.append(one)
            print("\n".join(("", *report.table(one.rows), *one.notes)), flush=True)
            if arguments.json is not None:  # after each part: what comes later may fail
                said = {**dataclasses.asdict(settings), "fsync": arguments.fsync}
                arguments.json.parent.mkdir(parents=True, exist_ok=True)
                text = report.to_json(machine, said, found, time.monotonic() - began)
                arguments.json.write_text(text, encoding="utf-8")
    print("\n".join(("", *report.checks(found), f"{time.monotonic() - began:.0f} s")))
    broken = [check for one in found for check in one.checks if not check.holds]
    return 1 if arguments.strict and broken else 0


def main() -> int:
    """The exit status."""
    arguments = _parser().parse_args()
    if arguments.command == "run":
        try:
            return _run(arguments)
        except TooShort as error:
            print(error, file=sys.stderr)
            return 1
    if arguments.command == "show":
        print("\n".join(report.markdown(json.loads(arguments.run.read_text(encoding="utf-8")))))
        return 0
    base, now = (json.loads(path.read_text(encoding="utf-8")) for path in (arguments.base, arguments.now))
    print("\n".join(report.compare(base, now)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
