# SPDX-License-Identifier: Apache-2.0
"""A turn on the accelerators, as its holder sees it."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING

from tsclient import forks
from tsclient.clock import boottime
from tsclient.deadlines import OVER
from tsclient.errors import ClientClosed, LockLost, NotHolder, TimesliceError, TurnLost
from tsclient.waiting import BlockingInbox

if TYPE_CHECKING:
    from tsclient.engine import Engine, Reply
    from tsclient.news import Grant

_log = logging.getLogger("tsclient")

WHY_WAIT = 1.0  # s that a check which finds the turn over waits to be told why


class Ending:
    """How a turn ended: set by any thread, the first time counts, and no lock that an interrupt could leave."""

    __slots__ = ("_errors", "_waiting")

    def __init__(self) -> None:
        self._errors: list[TimesliceError] = []
        self._waiting: list[threading.Event] = []  # a turn seldom has anybody who waits for its end

    @property
    def error(self) -> TimesliceError | None:
        """None while the turn is held."""
        return self._errors[0] if self._errors else None

    def set(self, error: TimesliceError) -> None:
        self._errors.append(error)  # atomic, and what was there before stays first
        for told in tuple(self._waiting):
            told.set()

    def wait(self, timeout: float) -> None:
        """Wait until it is set."""
        told = threading.Event()
        self._waiting.append(told)
        if not self._errors:  # read after the append: whoever sets it from now on sees that there is one who waits
            told.wait(timeout)
        self._waiting.remove(told)


class AnyTurn:
    """What blocking and asyncio turns have in common.

    Attributes:
        group, job: whose turn it is; of several groups the first that was asked for.
        token: the fencing token: larger than that of any earlier turn in the group. Hand it to whatever else
            (a file store, a database) has to refuse a holder whose turn is over.
        tokens: by group; one for each that was asked for.
        waited: seconds from the call to the grant.
        restored: whether processes of the job were brought back for it.
        ending: how it ended, without a look at the clock; for the library itself.
    """

    def __init__(self, engine: Engine, key: int, slot: int, job: str, grants: Sequence[Grant], waited: float) -> None:
        self.tokens: Mapping[str, int] = MappingProxyType({grant.group: grant.token for grant in grants})
        self.group, self.token = grants[0].group, grants[0].token
        self.job, self.waited = job, waited
        self.restored = any(grant.restored for grant in grants)
        self._engine = engine
        self._key = key
        self._cells, self._slot = engine.deadlines.cells, slot
        self._born = forks.generation()
        self.ending = Ending()

    def __repr__(self) -> str:
        over = self.ending.error
        return f"<{self._name()}: {'held' if over is None else over.reason}>"

    def _name(self) -> str:
        where = ", ".join(f"{group} (token {token})" for group, token in self.tokens.items())
        return f"Turn of {self.job} in {where}"

    @property
    def lost(self) -> bool:
        """Whether the turn ended before it was given back. Reads a number and a clock."""
        return isinstance(self._look(), LockLost)

    def check(self) -> None:
        """Cheap enough for every step of a loop: well below 1 µs; reads a number and a clock.

        Raises:
            LockLost: the turn is over. Final.
            NotHolder: it has been given back.
            ClientClosed: its client has been closed, which gave it back.
            ForkedClient: called in a child of the holder.
        """
        if self._born != forks.generation():
            forks.check(self._born)
        over = self._look()
        if over is None:
            return
        if isinstance(over, LockLost):
            self._engine.noticed(self._key)
        raise over

    def __del__(self) -> None:
        # Nobody can give it back any more: interrupted between grant and block, or never kept by its caller.
        if not hasattr(self, "ending") or self._born != forks.generation() or self._engine.ended:
            return
        match self.ending.error:
            case None:
                self.ending.set(NotHolder("The turn was dropped."))
                self._engine.drop(self._key)
                warnings.warn(f"{self!r} was never given back; it is now", ResourceWarning, source=self, stacklevel=2)
            case LockLost():
                self._engine.noticed(self._key)
            case _:
                pass

    # ------------------------------------------------------------ of the library

    def _look(self) -> TimesliceError | None:
        # The clock is read first: a deadline that is newer than the time it is compared with does no harm.
        now = boottime()
        deadline = self._cells[self._slot]
        if now < deadline and not self.ending._errors:  # noqa: SLF001 - a property costs as much as all the rest
            return None
        if deadline == OVER:
            self.ending.wait(WHY_WAIT)  # the reason is on its way
        if self.ending.error is None:
            why = "no heartbeat was confirmed in time, so its lease may have ended"
            message = f"The turn of {self.job} in {self.group} (token {self.token}) is lost: {why}."
            self.ending.set(TurnLost(message, group=self.group, token=self.token, why=why))
        return self.ending.error

    def _given_back(self) -> None:
        self.ending.set(NotHolder(f"The turn of {self.job} in {self.group} (token {self.token}) was given back."))

    def _leaves(self) -> bool:
        """Whether there is something to do at the end of its block."""
        if self._born != forks.generation():
            return False  # a child leaves its copy of the block: the turn is its parent's
        return not isinstance(self.ending.error, NotHolder | ClientClosed)  # given back inside the block


class Turn(AnyTurn):
    """Made by `Client.acquire`; a context manager that gives the turn back at its end."""

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
        inbox: BlockingInbox[Reply] = BlockingInbox()
        try:
            waiters = inbox.drive(self._engine.returning(inbox, self._key, timeout))
        finally:
            # Interrupted or unconfirmed, it is no longer held. If it was lost on the way, that came first.
            self._given_back()
        if isinstance(self.ending.error, LockLost):
            self.check()
        return waiters

    def __enter__(self) -> Turn:  # noqa: PYI034 - 3.10 has no Self
        self.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._leaves():
            return
        try:
            self.yield_()
        except TimesliceError as trouble:
            if error is None:
                raise
            add_note(error, trouble)


def add_note(error: BaseException, trouble: TimesliceError) -> None:
    """Tell of trouble at the end of a block which an exception is leaving already."""
    if error is trouble:
        return
    note = f"and the turn did not end well: {trouble}"
    add: Callable[[str], None] | None = getattr(error, "add_note", None)  # Python 3.11 and later
    if add is not None:
        add(note)
    else:
        _log.warning("%r is raised, %s", error, note)
