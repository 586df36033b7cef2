# SPDX-License-Identifier: Apache-2.0
"""The session's state, put into messages, and messages put into the session's terms. No state of its own."""

from __future__ import annotations

from collections.abc import Iterable

from timeslice_proto.v1 import coordinator_pb2, records_pb2
from tsclient import errors
from tsclient.entry import Entry, Stage
from tsclient.errors import LockLost
from tsclient.news import Grant
from tsclient.progress import Switching
from tsclient.want import Want

_WANTED = frozenset({Stage.WAITING, Stage.UNPROVEN, Stage.HELD, Stage.YIELDING})
_HOLDING = frozenset({Stage.UNPROVEN, Stage.HELD, Stage.YIELDING})


def opening(process: records_pb2.Process, ttl: float) -> coordinator_pb2.SessionRequest:
    """The greeting of a new session. `ttl` in seconds."""
    open_ = coordinator_pb2.OpenRequest(process=process, ttl_ms=round(ttl * 1000))
    return coordinator_pb2.SessionRequest(open=open_)


def resuming(session: str, secret: str, entries: Iterable[Entry], last_sequence: int) -> coordinator_pb2.SessionRequest:
    """The greeting of one that goes on: what it waits for and what it holds."""
    resume = coordinator_pb2.ResumeSession(session=session, secret=secret, last_sequence=last_sequence)
    for entry in entries:
        if entry.stage is Stage.WAITING:
            _acquiring(entry.want, entry.sequence, resume.wanted.add())
        elif entry.stage in _HOLDING:
            for grant in _unreturned(entry):
                resume.held.add(sequence=entry.sequence, job=entry.want.job, group=grant.group, token=grant.token)
    return coordinator_pb2.SessionRequest(resume=resume)


def beating(number: int, entries: Iterable[Entry], last_sequence: int) -> coordinator_pb2.SessionRequest:
    """A heartbeat that names all that is wanted, so that the server can drop the rest."""
    beat = coordinator_pb2.BeatRequest(
        number=number,
        last_sequence=last_sequence,
        wanted=[entry.sequence for entry in entries if entry.stage in _WANTED],
        prune=True,
    )
    return coordinator_pb2.SessionRequest(beat=beat)


def asking(entry: Entry) -> list[coordinator_pb2.SessionRequest]:
    """What an entry asks for in the stage that it is in."""
    match entry.stage:
        case Stage.WAITING:
            request = coordinator_pb2.SessionRequest()
            _acquiring(entry.want, entry.sequence, request.acquire)
            return [request]
        case Stage.YIELDING:
            return [_yielding(entry, grant) for grant in _unreturned(entry)]
        case Stage.CANCELLING:
            cancel = coordinator_pb2.CancelRequest(sequence=entry.sequence)
            return [coordinator_pb2.SessionRequest(cancel=cancel)]
        case _:
            return []


def _acquiring(want: Want, sequence: int, into: coordinator_pb2.AcquireRequest) -> None:
    # Filled in where it stands: to make a message first copies it.
    into.sequence, into.job, into.priority, into.backend = sequence, want.job, want.priority, want.backend
    into.groups.extend(want.groups)
    into.if_held = coordinator_pb2.IF_HELD_WAIT if want.join else coordinator_pb2.IF_HELD_REFUSE


def _unreturned(entry: Entry) -> list[Grant]:
    return [grant for grant in entry.grants if grant.group not in entry.returned]


def _yielding(entry: Entry, grant: Grant) -> coordinator_pb2.SessionRequest:
    request = coordinator_pb2.SessionRequest()
    body = getattr(request, "yield")  # a keyword of the language, so it cannot be written as an attribute
    body.sequence, body.job, body.group, body.token = entry.sequence, entry.want.job, grant.group, grant.token
    return request


def closing(*, abandoned: bool) -> coordinator_pb2.SessionRequest:
    """Give back everything; or, where the process is no more, end the session so that its turns count as lost."""
    return coordinator_pb2.SessionRequest(close=coordinator_pb2.CloseRequest(abandoned=abandoned))


def grants(granted: coordinator_pb2.Granted) -> tuple[Grant, ...]:
    """One for each group of the acquire."""
    return tuple(Grant(each.group, each.token, each.restored, len(each.lost)) for each in granted.grants)


def switching(news: coordinator_pb2.Switching) -> Switching:
    """How far the switch to this job is. A phase of a newer server is given by its number."""
    try:
        phase = records_pb2.Phase.Name(news.phase).removeprefix("PHASE_")
    except ValueError:
        phase = str(int(news.phase))
    return Switching(news.group, phase, news.epoch, news.nodes, news.answered)


def lost_error(entry: Entry, why: str, reason: str = "", group: str = "") -> LockLost:
    """What the owner of a held turn is told of its end; it may have come in one of its groups alone."""
    group = group or entry.want.groups[0]
    token = next((grant.token for grant in entry.grants if grant.group == group), 0)
    kind = errors.Evicted if reason == errors.Evicted.reason else errors.TurnLost
    return kind(
        f"The turn of {entry.want.job} in {group} (token {token}) is lost: {why.rstrip('.')}.",
        group=group,
        token=token,
        why=why,
    )
