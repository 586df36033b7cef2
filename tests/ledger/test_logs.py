# SPDX-License-Identifier: Apache-2.0
"""Lines of the log are gathered, and none waits for longer than it may."""

from __future__ import annotations

import asyncio
import io
import logging
import re
import time
from collections.abc import Iterator

import pytest

from ledger import logs

_WITHIN = 30.0


class Stream(io.StringIO):
    """Remembers each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []
        self.written = asyncio.Event()

    def write(self, text: str) -> int:
        self.writes.append(text)
        self.written.set()
        return len(text)


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def log(stream: Stream) -> Iterator[logging.Logger]:
    handler = logs.Lines(stream)
    logger = logging.getLogger("tests.lines")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield logger
    logger.removeHandler(handler)


def sentences(text: str) -> list[str]:
    return [line.partition(": ")[2] for line in text.splitlines()]


async def test_lines_of_one_moment_are_one_write(log: logging.Logger, stream: Stream) -> None:
    log.info("the %s", "first")
    log.info("the second")
    assert stream.writes == []

    async with asyncio.timeout(_WITHIN):
        await stream.written.wait()

    (text,) = stream.writes
    assert sentences(text) == ["the first", "the second"]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO tests\.lines: the first\n", text)


async def test_a_warning_waits_for_nothing_and_takes_along_what_was_said_before(
    log: logging.Logger, stream: Stream
) -> None:
    log.info("before")
    log.warning("now")

    (text,) = stream.writes
    assert sentences(text) == ["before", "now"]


def test_without_an_event_loop_no_line_waits(log: logging.Logger, stream: Stream) -> None:
    log.info("one")
    log.info("two")

    assert [sentences(text) for text in stream.writes] == [["one"], ["two"]]


async def test_a_busy_loop_holds_up_no_line_for_long(
    log: logging.Logger, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "GATHER", 0.0)  # the loop has no turn in this test before its end
    log.info("one")
    log.info("two")

    assert [sentences(text) for text in stream.writes] == [["one", "two"]]


async def test_the_end_of_the_program_writes_what_waits(log: logging.Logger, stream: Stream) -> None:
    log.info("the last")
    (handler,) = log.handlers
    handler.flush()  # as `logging.shutdown` does

    assert sentences(stream.writes[0]) == ["the last"]


async def test_an_error_is_told_with_its_cause(log: logging.Logger, stream: Stream) -> None:
    try:
        raise ValueError("no such thing")
    except ValueError:
        log.exception("it failed")

    (text,) = stream.writes
    assert "it failed\nTraceback" in text
    assert text.endswith("ValueError: no such thing\n")


async def test_a_line_that_is_said_afterwards_has_the_time_of_its_call(log: logging.Logger, stream: Stream) -> None:
    before = time.time()
    logs.afterwards(log, "the %s", "first", extra={"group": "g"})
    said = time.time()
    assert stream.writes == []

    async with asyncio.timeout(_WITHIN):
        await stream.written.wait()

    (line,) = "".join(stream.writes).splitlines()
    assert sentences(line) == ["the first"]
    at = time.mktime(time.strptime(line[:19], "%Y-%m-%d %H:%M:%S")) + int(line[20:23]) / 1000
    assert before - 0.001 <= at <= said


async def test_whatever_is_said_meanwhile_comes_behind_it(log: logging.Logger, stream: Stream) -> None:
    logs.afterwards(log, "first")
    logs.afterwards(log, "second")
    log.info("third")
    logs.afterwards(log, "fourth")
    log.warning("now")

    assert sentences("".join(stream.writes)) == ["first", "second", "third", "fourth", "now"]


async def test_it_is_said_at_the_end_of_the_program(log: logging.Logger, stream: Stream) -> None:
    logs.afterwards(log, "the last")
    log.handlers[0].flush()  # as `logging.shutdown` does

    assert sentences("".join(stream.writes)) == ["the last"]


async def test_what_nobody_wants_to_read_is_not_said_afterwards(log: logging.Logger, stream: Stream) -> None:
    log.setLevel(logging.WARNING)
    logs.afterwards(log, "unheard")
    log.warning("heard")

    assert sentences("".join(stream.writes)) == ["heard"]


def test_without_an_event_loop_it_is_said_at_once(log: logging.Logger, stream: Stream) -> None:
    logs.afterwards(log, "one")
    logs.afterwards(log, "two")

    assert sentences("".join(stream.writes)) == ["one", "two"]


def test_an_event_loop_that_has_ended_keeps_nothing_back(log: logging.Logger, stream: Stream) -> None:
    async def leave() -> None:
        logs.afterwards(log, "left behind")

    asyncio.run(leave())
    logs.say()

    assert sentences("".join(stream.writes)) == ["left behind"]
