# SPDX-License-Identifier: Apache-2.0
"""`timeslice`: the parser, the commands of other packages, and how an error is shown."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from tsclient.cli import admin, exits, get, group, run, status, ticket
from tsclient.cli.exits import Exit
from tsclient.errors import TimesliceError

if TYPE_CHECKING:
    from tsclient.cli.options import Subparsers

GROUP = "timeslice.commands"
_OWN = (run, ticket, status, get, group, admin)

# Found by entry point where the system is installed; where only the client is, each says what is missing.
_OF_THE_SYSTEM = ("agent", "coordinator", "dev", "doctor", "repair")

_EPILOG = """\
examples:
  timeslice run --group trainers --job job-7 -- python train.py
  timeslice status
  timeslice get groups
  timeslice get queue trainers --watch
  timeslice group put trainers --node node-a=GPU-1f0c,GPU-77aa --node node-b=GPU-90e1
  timeslice pause trainers

environment:
  TIMESLICE_ENDPOINTS   host:port of the coordinators, comma separated
  TIMESLICE_GROUP, TIMESLICE_JOB_ID   whose accelerators, and for which job
  TIMESLICE_TLS_CA, TIMESLICE_TLS_CERT, TIMESLICE_TLS_KEY   PEM files, where TLS is used
  TIMESLICE_TOKEN_FILE  file with a bearer token, where the coordinators ask for one

exit status:
""" + "\n".join(f"  {status:>3}  {meaning}" for status, meaning in exits.MEANING.items())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Each error is one line, with what to do about it."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    args = build_parser(arguments).parse_args(arguments)
    try:
        return int(args.run(args) or Exit.DONE)
    except TimesliceError as error:
        print(f"timeslice: {error}", file=sys.stderr)
        return exits.of(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has gone. The interpreter's own last flush must not complain of it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE


def build_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser, with those commands of other packages that these arguments may mean."""
    parser = argparse.ArgumentParser(
        prog="timeslice",
        description="Jobs take turns on shared accelerators.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands: Subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in _OWN:
        module.register(commands)
    # Loading one costs its package's imports: it is done only where it is asked for, or to list them all.
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    own = set(commands.choices)
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    for name in sorted({*found, *_OF_THE_SYSTEM} - own):
        if wanted is None or wanted == name or wanted not in own:
            _add(name, found.get(name), commands)
    return parser


def _add(name: str, entry: EntryPoint | None, commands: Subparsers) -> None:
    if entry is None:
        _add_missing(name, commands, "it is a command of the system, and only the client is installed")
        return
    try:
        register = entry.load()
    except ImportError as error:
        _add_missing(name, commands, f"{error.name or 'a module'} is missing ({error})")
        return
    register(commands)


def _add_missing(name: str, commands: Subparsers, why: str) -> None:
    """A command that cannot be loaded is listed, and says what to install."""

    def run(_: argparse.Namespace) -> int:
        print(
            f"timeslice: `{name}` is not usable here: {why}. "
            "`pip install timeslice-system` brings all that the commands need.",
            file=sys.stderr,
        )
        return Exit.FAILED

    # Whatever follows is taken for words, options too: no word begins with a NUL.
    parser = commands.add_parser(name, help=f"(not usable here: {why})", add_help=False, prefix_chars="\0")
    parser.add_argument("words", nargs="*")
    parser.set_defaults(run=run)


if __name__ == "__main__":
    sys.exit(main())
