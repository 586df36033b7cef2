# SPDX-License-Identifier: Apache-2.0
"""What has to notice a planted bug: a model of the explorer, a test, or a scenario with a fixed seed.

Each is a command that is run in the tree that has the bug. A command that breaks in another way than by noticing, as by
an import that fails, has noticed nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol


class Catch(Protocol):
    """Something that notices."""

    @property
    def command(self) -> tuple[str, ...]:
        """Arguments of the interpreter."""

    def noticed(self, status: int, said: str) -> str:
        """What it has found, in a few words; empty: nothing."""

    def passed(self, status: int) -> bool:
        """Whether it found nothing wrong, and came to its end."""

    def __str__(self) -> str:
        """What a person types to see it."""


@dataclass(frozen=True, slots=True)
class Explorer:
    """A model that is searched until one of these invariants breaks.

    Attributes:
        invariants: numbers of docs/explorer.md.
        arguments: of ``python -m chaos.explore``.
    """

    invariants: frozenset[int]
    arguments: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        return ("-m", "chaos.explore", "--workers", "1", *self.arguments)

    def noticed(self, status: int, said: str) -> str:
        found = re.search(r"^BROKEN: (invariant (\d+): .*)$", said, re.MULTILINE)
        if status != 1 or found is None or int(found[2]) not in self.invariants:
            return ""
        return found[1]

    def passed(self, status: int) -> bool:
        return status == 0

    def __str__(self) -> str:
        return f"`python -m chaos.explore {' '.join(self.arguments)}`"


def breaks(*invariants: int, search: str) -> Explorer:
    """A model, by the explorer's arguments, that is searched until one of the invariants breaks."""
    return Explorer(frozenset(invariants), tuple(search.split()))


@dataclass(frozen=True, slots=True)
class Pytest:
    """Tests of which at least one fails, on an assertion or an error of its own.

    Attributes:
        name: as pytest takes it.
        options: more of the command line.
    """

    name: str
    options: tuple[str, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        return ("-m", "pytest", "-q", "-x", "--tb=line", "-p", "no:cacheprovider", *self.options, self.name)

    def noticed(self, status: int, said: str) -> str:
        found = re.search(r"^FAILED (\S+::\S+)(?: - (.*))?$", said, re.MULTILINE)
        if status != 1 or found is None:
            return ""
        return f"{found[1].partition('::')[2]}: {(found[2] or '').strip() or 'failed'}"

    def passed(self, status: int) -> bool:
        return status == 0

    def __str__(self) -> str:
        return f"`pytest {self.name}`"


def schedules(name: str) -> Pytest:
    """A test of tests/property, content with the first schedule that fails: the shortest would take long."""
    return Pytest(f"tests/property/{name}", ("--hypothesis-profile=first-failure",))


@dataclass(frozen=True, slots=True)
class Chaos:
    """A scenario on real processes that ends with one of these promises violated."""

    scenario: str
    seed: int
    count: int
    promises: frozenset[str]

    @property
    def command(self) -> tuple[str, ...]:
        return ("-m", "chaos", "run", self.scenario, "--seed", str(self.seed), "--count", str(self.count))

    def noticed(self, status: int, said: str) -> str:
        found = re.findall(r"^  VIOLATED (.*)$", said, re.MULTILINE)
        known = [str(line) for line in found if line.partition(":")[0] in self.promises]
        return known[0] if status == 1 and known else ""

    def passed(self, status: int) -> bool:
        return status == 0

    def __str__(self) -> str:
        return f"`python {' '.join(self.command)}`"
