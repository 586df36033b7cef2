# SPDX-License-Identifier: Apache-2.0
"""What jobs have reported, group by group: each is a lock of its own, and judged by itself. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from chaos.dev.lines import Granted, Line, Yielded


def of_group(
    jobs: Mapping[str, Sequence[Line]], groups: Mapping[str, Iterable[str]], group: str
) -> dict[str, Sequence[Line]]:
    """The lines of the jobs of this group, by job, each with the token that it had there.

    ``groups``: those in which each job takes its turns.
    """
    return {job: tuple(_in_group(lines, group)) for job, lines in jobs.items() if group in groups[job]}


def _in_group(lines: Sequence[Line], group: str) -> Iterator[Line]:
    """A turn in several groups that has no token of this one was none here."""
    for line in lines:
        if not isinstance(line, Granted | Yielded) or not line.tokens:
            yield line
        elif group in line.tokens:
            yield replace(line, token=line.tokens[group], tokens={})
