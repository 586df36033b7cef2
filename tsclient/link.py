# SPDX-License-Identifier: Apache-2.0
"""The way between those who use a session and where it is kept: in the helper, or in a thread of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tsclient.deadlines import Deadlines
from tsclient.news import News
from tsclient.orders import Order


class Link(Protocol):
    """
    Attributes:
        deadlines: of the turns of this process, kept current by the session.
    """

    deadlines: Deadlines

    def start(self, take: Callable[[Sequence[News]], None], standing: Callable[[], Sequence[Order]]) -> None:
        """Open the session.

        Args:
            take: called with the news, in a thread that is the link's.
            standing: what is wanted at present, for one who takes over; called in that thread too.
        """

    def post(self, order: Order) -> None:
        """Pass an order on, after those before. Never waits and takes no lock: finalizers may call it."""

    def leave(self) -> None:
        """Nothing is wanted any more: end the stream, whatever becomes of the session."""
