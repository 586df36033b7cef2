# SPDX-License-Identifier: Apache-2.0
"""The production session of a client (`tsclient.session`), asked what it sends where its job's ticket stands so.

It is put into each standing by the events that lead there, with a turn of the past behind it, and then made to do what
its user may do next, or left alone until its next beat. What it sends is what the model's client asks of a replica: its
sequence numbers and its tokens, and what a beat does not name any more (protocol rule 26). Its clock and its streams
are searched by schedules of their own (tests/property).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from timeslice_proto.v1 import coordinator_pb2, records_pb2
from tsclient.news import Lost
from tsclient.session import Session
from tsclient.session_records import Output, Send
from tsclient.want import Want

PAST, PRESENT = 1, 2
"""The sequence numbers of the acquire of the past and of the one that is wanted now."""

_GROUP, _JOB, _TTL = "g", "a", 10.0
_OLD_TOKEN, _TOKEN = 29, 30
_WANT = Want(_JOB, (_GROUP,))


class Standing(NamedTuple):
    """Where a job stands, as its client has heard: its ticket's state, "" for none; ``ghost``: one of the past."""

    ticket: str
    ghost: bool = False


class Asked(NamedTuple):
    """What goes to a replica.

    Attributes:
        what: acquire, yield or cancel.
        current: about the acquire that is wanted now.
        token: with the turn's token.
        by_itself: without the user's doing.
    """

    what: str
    current: bool
    token: bool
    by_itself: bool


class Client:
    """One session and the clock that it is told of."""

    def __init__(self) -> None:
        self.now = 0.0
        self.session = Session(records_pb2.Process(boot_id="boot", pid=1, start_time=1), _TTL)
        self.session.connected(self.now)
        opened = coordinator_pb2.Opened(session="1", secret="s", ttl_ms=round(_TTL * 1000))
        self.event(opened=opened)
        self.event(beat=coordinator_pb2.BeatConfirmed(number=1, ttl_ms=round(_TTL * 1000)))
        self.key, _ = self.session.acquire(self.now, _WANT)
        self.granted(PAST, _OLD_TOKEN)
        self.session.yield_(self.now, self.key)
        self.event(yielded=coordinator_pb2.Yielded(sequence=PAST, group=_GROUP))

    def event(self, **event: object) -> list[Output]:
        """One event of the stream."""
        return self.session.event(self.now, coordinator_pb2.SessionEvent(**event))  # type: ignore[arg-type]

    def granted(self, sequence: int, token: int) -> list[Output]:
        grants = [coordinator_pb2.GroupGrant(group=_GROUP, token=token)]
        return self.event(granted=coordinator_pb2.Granted(sequence=sequence, grants=grants))

    def acquires(self) -> list[Output]:
        self.key, outputs = self.session.acquire(self.now, _WANT)
        return outputs

    def next_beat(self) -> list[Output]:
        """Time passes until the session does something by itself."""
        self.now = self.session.next_at()
        return self.session.tick(self.now)

    def silent(self) -> list[Output]:
        """Time passes, and no beat is confirmed."""
        self.now = self.session.proof
        return self.session.tick(self.now)


@cache
def asks(standing: Standing) -> tuple[Asked, ...]:
    """Everything that a client may send where its job stands so."""
    client = Client()
    if standing.ghost:
        return tuple(_asked(client.next_beat(), PAST))
    if not standing.ticket:
        return tuple(_asked(client.acquires(), PAST))
    client.acquires()
    match standing.ticket:
        case "WAITING":
            return tuple(_asked(client.session.give_up(client.now, client.key), PRESENT))
        case "GRANTED":
            client.granted(PRESENT, _TOKEN)
            return tuple(_asked(client.session.yield_(client.now, client.key), PRESENT))
        case _:
            refused = coordinator_pb2.Refused(sequence=PRESENT, reason="JOB_QUARANTINED", message="at fault")
            client.event(refused=refused)
            return tuple(_asked(client.next_beat(), PRESENT))


def asks_again_once_lost() -> bool:
    """Whether a session whose held turn is lost queues for its job again by itself (protocol rule 22)."""
    client = Client()
    client.acquires()
    client.granted(PRESENT, _TOKEN)
    lost = any(isinstance(one, Lost) for one in client.silent())
    then = client.event(cancelled=coordinator_pb2.Cancelled(sequence=PRESENT))
    return lost and any(one.what == "acquire" for one in _asked(then, PRESENT))


def _asked(outputs: Iterable[Output], ticket: int) -> Iterable[Asked]:
    """What these requests come to at a replica, while there is a ticket of this sequence number."""
    for output in outputs:
        if not isinstance(output, Send):
            continue
        request = output.request
        match request.WhichOneof("request"):
            case "acquire":
                yield Asked("acquire", request.acquire.sequence >= PRESENT, token=True, by_itself=False)
            case "yield":
                body = getattr(request, "yield")
                yield Asked("yield", body.sequence == PRESENT, token=body.token == _TOKEN, by_itself=False)
            case "cancel":
                yield Asked("cancel", request.cancel.sequence == PRESENT, token=True, by_itself=False)
            case "beat":
                if ticket <= request.beat.last_sequence and ticket not in request.beat.wanted:
                    yield Asked("cancel", ticket == PRESENT, token=True, by_itself=True)
            case _:
                pass  # greetings
