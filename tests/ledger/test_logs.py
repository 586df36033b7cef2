# SPDX-License-Identifier: Apache-2.0
"""Lines of the log are gathered, and none waits for longer than it may."""

from __future__ import annotations

import asyncio
import io
import logging
import re
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
