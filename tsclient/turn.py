# SPDX-License-Identifier: Apache-2.0
"""A turn on the accelerators, as its holder sees it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from tsclient import forks
from tsclient.clock import boottime
from tsclient.errors import ClientClosed, LockLost, NotHolder, TimesliceError, TurnLost

if TYPE_CHECKING:
    from tsclient.engine import Engine


_log = logging.getLogger("tsclient")


class Ending:
    """How a turn ended: set by any thread, the first time counts, and no lock that an interrupt could leave."""

    __slots__ = ("_errors",)

    def __init__(self) -> None:
        self._errors: list[TimesliceError] = []

    @property
    def error(self) -> TimesliceError | None:
        """None while the turn is held."""
        return self._errors[0] if self._errors else None

    def set(self, error: TimesliceError) -> None:
        self._errors.append(error)  # atomic, and what was there before stays first


class Turn:
    """Made by `Client.acquire`; a context manager that gives the turn back at its end.

    Attributes:
        group, job: whose turn it is.
        token: the fencing token: larger than that of any earlier turn in the group. Hand it to whatever else
            (a file store, a database) has to refuse a holder whose turn is over.
        waited: seconds from the call to the grant.
        restored: whether processes of the job were brought back for it.
        ending: how it ended, without a look at the clock; for the library itself.
    """

    def __init__(
        self, engine: Engine, key: int, *, group: str, job: str, token: int, waited: float, restored: bool
    ) -> None:
        self.group, self.job, self.token, self.waited, self.restored = group, job, token, waited, restored
        self._engine = engine
        self._key = key
        self._born = forks.generation()
        self.ending = Ending()

    def __repr__(self) -> str:
        over = self.ending.error
        state = "held" if over is None else over.reason
        return f"<Turn of {self.job} in {self.group}, token {self.token}: {state}>"

    @property
    def lost(self) -> bool:
        """Whether the turn ended before it was given back. Reads two numbers and a clock."""
        return isinstance(self._look(), LockLost)

    def check(self) -> None:
        """Cheap enough for every step of a loop: reads two numbers and a clock.

        Raises:
            LockLost: the turn is over. Final.
            NotHolder: it has been given back.
            ClientClosed: its client has been closed, which gave it back.
            ForkedClient: called in a child of the holder.
        """
        forks.check(self._born)
        over = self._look()
        if over is None:
            return
        if isinstance(over, LockLost):
            self._engine.noticed(self._key)
        raise over

    def yield_(self, timeout: float = 30.0) -> int | None:
        """Give the turn back, and wait until the coordinator has confirmed it.

        Args:
            timeout: seconds to wait. It is given back in any case: by this call, by the next heartbeat, or by
                the end of the session.

        Returns:
            How many were waiting; None where nobody could say.

        Raises:
            LockLost: it was over before.
            NotHolder: it had been given back already.
            Unavailable: not confirmed in time.
            ForkedClient: called in a child of the holder.
        """
        self.check()
        try:
            waiters = self._engine.yield_turn(self._key, timeout)
        finally:
            # Interrupted or unconfirmed, it is no longer held. If it was lost on the way, that came first.
            self.ending.set(NotHolder(f"The turn of {self.job} in {self.group} (token {self.token}) was given back."))
        if isinstance(self.ending.error, LockLost):
            self.check()
        return waiters

    def __enter__(self) -> Turn:  # noqa: PYI034 - 3.10 has no Self
        self.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._born != forks.generation():
            return  # a child leaves its copy of the block: the turn is its parent's
        if isinstance(self.ending.error, NotHolder | ClientClosed):
            return  # given back inside the block
        try:
            self.yield_()
        except TimesliceError as trouble:
            if error is None:
                raise
            if error is not trouble:
                _add_note(error, f"and the turn did not end well: {trouble}")

    def __del__(self) -> None:
        # Nobody can give it back any more: interrupted between grant and block, or never kept by its caller.
        if self.ending.error is None and self._born == forks.generation() and not self._engine.ended:
            self.ending.set(NotHolder("The turn was dropped."))
            self._engine.drop(self._key)
            warnings.warn(f"{self!r} was never given back; it is now", ResourceWarning, source=self, stacklevel=2)

    # ------------------------------------------------------------ of the library

    def _look(self) -> TimesliceError | None:
        # The clock is read first: a deadline that is newer than the time it is compared with does no harm.
        now = boottime()
        if self.ending.error is None and now >= self._engine.proof:
            why = "no heartbeat was confirmed in time, so its lease may have ended"
            self.ending.set(
                TurnLost(
                    f"The turn of {self.job} in {self.group} (token {self.token}) is lost: {why}.",
                    group=self.group,
                    token=self.token,
                    why=why,
                )
            )
        return self.ending.error


def _add_note(error: BaseException, note: str) -> None:
    add: Callable[[str], None] | None = getattr(error, "add_note", None)  # Python 3.11 and later
    if add is not None:
        add(note)
    else:
        _log.warning("%r is raised, %s", error, note)
