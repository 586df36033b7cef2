# SPDX-License-Identifier: Apache-2.0
"""A command as another package brings one along."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tsclient.cli.options import Subparsers


def register(commands: Subparsers) -> None:
    parser = commands.add_parser("there")
    parser.add_argument("status", type=int)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    return int(args.status)
