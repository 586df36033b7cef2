# SPDX-License-Identifier: Apache-2.0
"""Tickets of `timeslice acquire`: each is kept by a process (`keeper`) that answers on a socket named after it.

The sockets are in a folder of the user's own, so whoever may open them is that user or root. One line of JSON goes
each way.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import stat
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tsclient.errors import BY_REASON, AcquireTimeout, BadRequest, InternalError, NotFound, TimesliceError, from_reason

Ask = Literal["status", "yield"]

_ID_BYTES = 8
_LINE_MAX = 1 << 16

# Those that no coordinator sends, and a keeper may.
_OWN = {AcquireTimeout.reason: AcquireTimeout}


@dataclass(frozen=True, slots=True)
class Held:
    """What a keeper says of its turn.

    Attributes:
        bound: the process by whose end it is given back.
        keeper: the process that keeps it.
        waiters: after a yield, how many were waiting; None where nobody could say.
    """

    ticket: str
    group: str
    job: str
    token: int
    bound: int
    keeper: int
    waiters: int | None = None


def new() -> str:
    """A name for a ticket that nobody can guess or has had."""
    return secrets.token_hex(_ID_BYTES)


def folder() -> Path:
    """Where this user's sockets are; made if it is not there.

    Raises:
        BadRequest: it belongs to somebody else, or others may enter it.
    """
    base = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(base) / "timeslice" if base else Path(tempfile.gettempdir()) / f"timeslice-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise BadRequest(f"{path} cannot be made: {error.strerror}.", next_step="Set XDG_RUNTIME_DIR.") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise BadRequest(
            f"{path} is not a folder of this user's alone.", next_step="Remove it, or set XDG_RUNTIME_DIR to another."
        )
    return path


def socket_of(ticket: str) -> Path:
    """Raises BadRequest if it is none that `new` has made."""
    if len(ticket) != 2 * _ID_BYTES or not set(ticket) <= set("0123456789abcdef"):
        raise BadRequest(f"{ticket!r} is no ticket.", next_step="Pass what `timeslice acquire` has printed.")
    return folder() / f"{ticket}.sock"


def all_here() -> list[str]:
    """This user's tickets on this machine, without a look at whether their keepers live."""
    return sorted(path.stem for path in folder().glob("*.sock"))


def ask(ticket: str, what: Ask, timeout: float) -> Held:
    """Ask a ticket's keeper.

    Raises:
        NotFound: nobody keeps it: it was given back, with its process or by a yield.
        LockLost: the turn is lost.
        Unavailable: it could not be given back in time, or the keeper does not answer.
    """
    path = socket_of(ticket)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(str(path))
            send(connection, {"ask": what})
            answer = receive(connection)
    except (FileNotFoundError, ConnectionRefusedError):
        path.unlink(missing_ok=True)  # of a keeper that was killed
        raise _gone(ticket) from None
    except TimeoutError as error:
        raise InternalError(f"The keeper of {ticket} does not answer within {timeout:g} s.") from error
    except OSError as error:
        raise InternalError(f"The keeper of {ticket} cannot be asked: {error}.") from error
    if answer is None:
        raise _gone(ticket)
    return held_or_raise(answer)


def held_or_raise(answer: dict[str, Any]) -> Held:
    """What an answer says; raises the error that it is, if it is one."""
    if "held" in answer:
        return Held(**answer["held"])
    error = answer["error"]
    kind = _OWN.get(error["reason"])
    if kind is not None:
        raise kind(error["message"], metadata=error["metadata"])
    if error["reason"] in BY_REASON:
        raise from_reason(error["reason"], error["message"], code=error["code"], metadata=error["metadata"])
    raise TimesliceError(error["message"], code=error["code"], reason=error["reason"], next_step=error["next_step"])


def answer_of(outcome: Held | TimesliceError) -> dict[str, Any]:
    """The answer by which it travels."""
    if isinstance(outcome, Held):
        return {"held": asdict(outcome)}
    fields = ("message", "code", "reason", "next_step", "metadata")
    return {"error": {name: getattr(outcome, name) for name in fields}}


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send one line. Raises OSError."""
    connection.sendall(json.dumps(message).encode() + b"\n")


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """One line; None if the other end has closed without one. Raises OSError."""
    with connection.makefile("rb") as stream:
        line = stream.readline(_LINE_MAX)
    return json.loads(line) if line.endswith(b"\n") else None


def _gone(ticket: str) -> NotFound:
    return NotFound(
        f"Nobody on this machine keeps ticket {ticket}: its turn is over.",
        reason="NO_SUCH_TICKET",
        next_step="Acquire again with `timeslice acquire`; `timeslice status` shows the tickets that are kept.",
    )
