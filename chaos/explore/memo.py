# SPDX-License-Identifier: Apache-2.0
"""What has been worked out once, so that a search of millions of states fits into memory."""

from __future__ import annotations

from typing import TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


class Memo(dict[_K, _V]):
    """Answers by question. When there are ``most``, all are forgotten, and worked out again when they are asked for.

    All at once, since a search goes layer by layer: what it asks for soon is what it has asked for lately, and to keep
    an order would cost more than to work that out again.
    """

    __slots__ = ("_most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: _K, value: _V) -> None:
        if len(self) >= self._most:
            self.clear()
        super().__setitem__(key, value)


class Shared:
    """One object for all that are equal: of what is kept in millions there are a few hundred that differ."""

    __slots__ = ("_known",)

    def __init__(self, most: int) -> None:
        self._known: Memo[object, object] = Memo(most)

    def one(self, value: _V) -> _V:
        """The one that stands for all that are equal to this."""
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = value
        return found  # type: ignore[return-value]
