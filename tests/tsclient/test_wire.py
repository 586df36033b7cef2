# SPDX-License-Identifier: Apache-2.0
"""What a process and its helper say to each other comes out as it went in."""

from __future__ import annotations

import math
import socket
from pathlib import Path

import pytest

from tsclient import entry, errors, news, orders, progress, settings, want
from tsclient.helper.wire import Incoming, pack, split, unpack

WANT = want.Want("job", ("g", "h"), 3)
GRANT = news.Grant("g", 2**62, restored=True, lost=1)
ENTRY = entry.Entry(7, WANT, entry.Stage.YIELDING, 9, grants=(GRANT,), returned=("g",), recovers=5)


@pytest.mark.parametrize(
    "record",
    [
        WANT,
        GRANT,
        ENTRY,
        entry.Saved("id", "secret", math.inf, 1, 2, (ENTRY,)),
        news.Opened(),
        news.Ended(None),
        news.Granted(1, (GRANT, GRANT)),
        news.GivenBack(1, None),
        news.Moved(1, progress.Queued("g", 4, "a \u2028 note")),
        news.Moved(1, progress.Switching("g", "PREPARING", 5, 2, 1)),
        orders.Acquire(1, 2, WANT, kill=True),
        orders.Keep(1, 2, held=False),
        orders.Close(),
        settings.Settings(("a:1", "b:2"), tls=settings.Tls(Path("/ca"))),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_comes_out_as_it_went_in(record: object) -> None:
    assert unpack(pack(["news", 1, [record], record])) == ["news", 1, [record], record]


def test_what_was_packed_before_goes_behind_a_message_unread() -> None:
    kept = (pack([None, ENTRY]), pack(want.Want("a\nb", ("g",))))
    message, *behind = split(pack(["entry", 1], *kept))
    assert (unpack(message), tuple(behind)) == (["entry", 1], kept)


def test_an_entry_comes_out_as_another_process_has_to_know_it() -> None:
    sent = entry.Entry(7, WANT, entry.Stage.YIELDING, 9, sent=True, not_before=5.0, grants=(GRANT,), recovers=5)
    for one in (ENTRY, sent, entry.Entry(1, WANT), entry.Entry(1, WANT, entry.Stage.WAITING, 3, known=True)):
        assert entry.Entry.of(unpack(pack(one.plain()))) == one.saved()


def test_packets_come_one_by_one_whatever_their_length() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        incoming = Incoming(theirs)
        sent = [b"a", b"b" * 100_000, b"c"]
        with ours:
            for packet in sent:
                ours.send(packet)
        assert [incoming.next() for _ in range(4)] == [*sent, b""]


def test_an_error_comes_out_with_all_that_it_says() -> None:
    metadata = {"": "no record", "job": "a"}
    lost = errors.Evicted("It is gone.", group="g", token=5, why="because", next_step="Ask.", metadata=metadata)
    (came,) = unpack(pack([news.Lost(1, lost)]))
    assert type(came.error) is errors.Evicted
    assert vars(came.error) == vars(lost) | {"code": lost.code, "reason": lost.reason}
    assert str(came.error) == str(lost)


def test_what_is_no_record_of_ours_is_not_sent() -> None:
    with pytest.raises(TypeError, match="no place in a message"):
        pack([object()])
