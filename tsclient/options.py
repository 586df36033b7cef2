# SPDX-License-Identifier: Apache-2.0
"""What can be said of an acquire: the same for blocking and asyncio, for a client's and the module's functions."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, SupportsIndex, TypedDict, TypeVar

from tsclient.errors import BadName, BadRequest
from tsclient.progress import OnProgress
from tsclient.progress_line import ProgressLine
from tsclient.settings import Settings
from tsclient.want import Want

if TYPE_CHECKING:
    from tsclient.engine import OnLost, Request
    from tsclient.turn import AnyTurn

IfHeld = Literal["refuse", "wait"]
OnLoss = Literal["raise", "kill"]

OPENING = 30.0  # seconds for a session, where nothing says less
_INT64 = 1 << 63
_NAME_MAX = 1_000  # more than any coordinator takes: a message to the helper, or to them, has to end somewhere

_Turn = TypeVar("_Turn", bound="AnyTurn")


class Options(TypedDict, total=False):
    """
    Attributes:
        timeout: seconds to wait at most; None: as long as it takes. The functions of the module open the session
            at their first use: in this time too, and in half a minute at most.
        priority: larger is served first. Not for several groups at once.
        job: another than the client's.
        if_held: what to do if another process has a ticket for the job: be refused, or wait for its end.
        on_progress: called by who waits with each piece of news, and what it raises ends the wait; "line": a line
            on standard error. None: TIMESLICE_PROGRESS.
        on_loss: "raise" LockLost at the next check and at the block's end, or "kill" this process with SIGKILL at
            once, even while a call into C holds the interpreter's lock. None: TIMESLICE_ON_LOSS.
        on_lost: called with the LockLost as soon as a turn is lost, in a thread of the library's own.
    """

    timeout: float | None
    priority: int
    job: str | None
    if_held: IfHeld
    on_progress: OnProgress | Literal["line"] | None
    on_loss: OnLoss | None
    on_lost: OnLost | None


@dataclass(frozen=True, slots=True)
class Asking(Generic[_Turn]):
    """An acquire that is about to be made."""

    request: Request[_Turn]
    timeout: float | None
    on_progress: OnProgress | None

    def done(self) -> None:
        """The wait is over, one way or the other."""
        if isinstance(self.on_progress, ProgressLine):
            self.on_progress.done()


def asking(
    settings: Settings,
    groups: tuple[str, ...],
    turn: type[_Turn],
    began: float,
    *,
    timeout: float | None = None,
    priority: int = 0,
    job: str | None = None,
    if_held: IfHeld = "refuse",
    on_progress: OnProgress | Literal["line"] | None = None,
    on_loss: OnLoss | None = None,
    on_lost: OnLost | None = None,
) -> Asking[_Turn]:
    """See `Options`; ``began``: since when it is waited for, by the monotonic clock.

    Raises:
        BadRequest: something is missing, unknown or contradicts another.
    """
    from tsclient.engine import Request

    who = settings.job if job is None else job
    if not who and not settings.disabled:
        raise BadRequest("It is not said for which job.", next_step="Set TIMESLICE_JOB_ID, or pass job.")
    _check_names(who, settings.backend, *groups)
    if not groups or len(set(groups)) != len(groups):
        raise BadRequest(f"These are no groups to acquire: {groups}.", next_step="Name one or several, each once.")
    priority = _check_priority(priority)
    if timeout is not None and math.isnan(timeout):
        raise BadRequest(f"{timeout} is no time to wait.", next_step="Give seconds, 0 or more.")
    if priority and len(groups) > 1:
        raise BadRequest("Several groups at once have no priority.", next_step="Leave it out, or acquire one group.")
    if if_held not in ("refuse", "wait"):
        raise BadRequest(f"if_held={if_held!r} is not known.", next_step="Pass 'refuse' or 'wait'.")
    if on_loss not in ("raise", "kill", None):
        raise BadRequest(f"on_loss={on_loss!r} is not known.", next_step="Pass 'raise' or 'kill'.")
    if on_progress == "line" or (on_progress is None and settings.progress_line):
        on_progress = ProgressLine()
    want = Want(who, groups, priority, join=if_held == "wait", backend=settings.backend)
    kill = settings.kill_on_loss if on_loss is None else on_loss == "kill"
    return Asking(Request(want, turn, kill, on_lost, began), timeout, on_progress)


def opening_within(timeout: float | None) -> float:
    """Seconds for the session to be opened in, for an acquire that has so many."""
    return OPENING if timeout is None else max(0.0, min(timeout, OPENING))


# What cannot be written into a message is refused here: in the session it would end the client, with all its turns.


def _check_names(*names: object) -> None:
    for name in names:
        if not isinstance(name, str):
            raise BadRequest(f"{name!r} is no name: it is no string.", next_step="Pass names as strings.")
        if len(name) > _NAME_MAX:
            raise BadName(f"{name[:80]!r}… is no name: it has {len(name)} characters.")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise BadRequest(f"{name!r} is no name: it is no text.", next_step="Pass names as strings.") from error


def _check_priority(priority: SupportsIndex) -> int:
    try:
        number = operator.index(priority)
    except TypeError as error:
        raise BadRequest(f"{priority!r} is no priority.", next_step="Pass an integer.") from error
    if not -_INT64 <= number < _INT64:
        raise BadRequest(f"{number} is no priority.", next_step="Pass an integer of 64 bits.")
    return number
