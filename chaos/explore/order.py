# SPDX-License-Identifier: Apache-2.0
"""Names that note which of them were compared: whoever compares no two of them answers alike however they are named.

The core may go through nodes and jobs in the order of their names and in no other way depend on what they are called.
So the answers for two ways to name them are alike, but for the names, if every two names that were compared on the way
to the one answer are in the same order in the other way. Two names are equal or not whatever they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from ledger.ordered import Ordered

_V = TypeVar("_V")

EVERYTHING = -1
"""What was asked, if a name was compared with what is none of its kind: no other way answers alike."""


@dataclass(slots=True)
class Order:
    """Of one way to name things, which comes before which, and what of that was asked. Facts are bits.

    Attributes:
        true: what is so in this way.
        asked: what of that somebody has learnt.
    """

    true: int = 0
    asked: int = 0
    _facts: dict[tuple[str, str], int] = field(default_factory=dict)
    _many: int = 0

    def named(self, names: Sequence[str]) -> tuple[Name, ...]:
        """These names, of things of one kind. The places that they stand at are what other ways have in common."""
        for place, first in enumerate(names):
            for other, second in enumerate(names):
                if first < second:
                    fact = 1 << (self._many + place * len(names) + other)
                    self._facts[first, second] = fact
                    self.true |= fact
        self._many += len(names) ** 2
        return tuple(Name.of(one, self) for one in names)

    def alike(self, asked: int) -> bool:
        """Whether all that was asked in another way is so in this one."""
        return asked & ~self.true == 0

    def note(self, first: str, second: str) -> None:
        """These two were compared."""
        if not str.__eq__(first, second):
            pair = (first, second) if str.__lt__(first, second) else (second, first)
            self.asked |= self._facts.get(pair, EVERYTHING)


class Name(str):
    """A name that notes what it is compared with."""

    __slots__ = ("_order",)
    _order: Order

    @classmethod
    def of(cls, name: str, order: Order) -> Name:
        made = cls(name)
        made._order = order
        return made

    def __lt__(self, other: str) -> bool:
        self._order.note(self, other)
        return str.__lt__(self, other)

    def __le__(self, other: str) -> bool:
        self._order.note(self, other)
        return str.__le__(self, other)

    def __gt__(self, other: str) -> bool:
        self._order.note(self, other)
        return str.__gt__(self, other)

    def __ge__(self, other: str) -> bool:
        self._order.note(self, other)
        return str.__ge__(self, other)


class ByName(Ordered[str, _V]):
    """Values by name. Who looks one up learns nothing of the order of the names; who goes through them does."""

    __slots__ = ("_by_name",)

    def __init__(self, by_name: Mapping[str, _V] = MappingProxyType({})) -> None:
        super().__init__()
        self._by_name = by_name

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._by_name))

    def values(self) -> Iterator[_V]:
        return map(self._by_name.__getitem__, self)

    def get(self, key: str) -> _V | None:
        return self._by_name.get(key)

    def put(self, key: str, value: _V) -> ByName[_V]:
        return ByName({**self._by_name, key: value})

    def without(self, key: str) -> ByName[_V]:
        return ByName({name: value for name, value in self._by_name.items() if name != key})
