# SPDX-License-Identifier: Apache-2.0
"""What the commands' parsers have in common."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - the only name it has

Run = Callable[[argparse.Namespace], "int | None"]

DEFAULT_TIMEOUT = 10.0  # s


def add_command(
    commands: Subparsers, name: str, run: Run | None, *, summary: str, text: str = "", examples: str = ""
) -> argparse.ArgumentParser:
    """A command with its help. Without `run` it is one that has commands of its own.

    Args:
        text: the description; the summary if empty.
        examples: command lines, one a line.
    """
    parser = commands.add_parser(
        name,
        help=summary,
        description=textwrap.dedent(text).strip() or summary[0].upper() + summary[1:] + ".",
        epilog="examples:\n" + textwrap.indent(textwrap.dedent(examples).strip(), "  "),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if run is not None:
        parser.set_defaults(run=run)
        parser.add_argument(
            "--endpoints", metavar="H:P,…", help="coordinators; default: the environment's TIMESLICE_ENDPOINTS"
        )
        parser.add_argument(
            "--timeout", type=float, default=DEFAULT_TIMEOUT, metavar="S",
            help=f"seconds to wait for an answer; default: {DEFAULT_TIMEOUT:g}",
        )  # fmt: skip
    return parser
