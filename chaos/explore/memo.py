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
