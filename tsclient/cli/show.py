# SPDX-License-Identifier: Apache-2.0
"""Output: tables for people, the JSON form of the messages for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.message import Message

Row = Sequence[object]


def print_json(message: Message, *, one_line: bool = False) -> None:
    """The JSON form of a message, as protobuf defines it; names of fields as in the .proto files."""
    from google.protobuf.json_format import MessageToDict

    form = MessageToDict(message, preserving_proto_field_name=True)
    print(json.dumps(form, indent=None if one_line else 2), flush=True)


def print_table(headings: Sequence[str], rows: Sequence[Row]) -> None:
    """A table: coloured on a terminal where `rich` is installed, plain text otherwise."""
    if sys.stdout.isatty() and _print_rich(headings, rows):
        return
    print("\n".join(plain(headings, rows)), flush=True)


def plain(headings: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """The lines of a table in plain text, columns aligned to the left."""
    cells = [list(headings), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(headings))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _print_rich(headings: Sequence[str], rows: Sequence[Row]) -> bool:
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return False
    table = Table(*headings, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    Console(markup=False, highlight=False).print(table)
    return True
