# SPDX-License-Identifier: Apache-2.0
"""What can be said of an acquire and in the environment; a script that runs without a coordinator."""

from __future__ import annotations

import io

import pytest

import tsclient as ts
from tests.tsclient.child import child
from tsclient import options, settings
from tsclient.progress_line import ProgressLine

SETTINGS = settings.Settings(("h:1",), "a")


@pytest.mark.parametrize(
    ("groups", "said", "words"),
    [
        ((), {}, "no groups"),
        (("g", "g"), {}, "no groups"),
        (("g", "h"), {"priority": 1}, "no priority"),
        (("g",), {"if_held": "maybe"}, "if_held"),
        (("g",), {"on_loss": "cry"}, "on_loss"),
        (("g",), {"job": ""}, "which job"),
        # What the session could not put into a message: it would end there, with every other turn of the process.
        (("g",), {"job": 5}, "no name"),
        (("g", None), {}, "no name"),
        ((["g"],), {}, "no name"),
        (("\ud800",), {}, "no name"),
        (("g",), {"priority": 1.5}, "no priority"),
        (("g",), {"priority": 1 << 63}, "no priority"),
        (("g",), {"timeout": float("nan")}, "no time to wait"),
    ],
)
def test_what_cannot_be_right_is_refused(groups: tuple[str, ...], said: dict[str, object], words: str) -> None:
    with pytest.raises(ts.BadRequest, match=words):
        options.asking(SETTINGS, groups, ts.Turn, 0.0, **said)  # type: ignore[arg-type]


def test_a_name_that_would_break_a_message_is_refused() -> None:
    with pytest.raises(ts.TimesliceError, match="no name"):
        options.asking(SETTINGS, ("g" * 2_000_000,), ts.Turn, 0.0)


def test_the_environment_counts_where_an_acquire_says_nothing() -> None:
    said = settings.load(
        environ={"TIMESLICE_ENDPOINTS": "h:1", "TIMESLICE_ON_LOSS": "kill", "TIMESLICE_PROGRESS": "line"}, job="a"
    )
    ask = options.asking(said, ("g",), ts.Turn, 0.0)
    assert ask.request.kill
    assert isinstance(ask.on_progress, ProgressLine)
    assert not options.asking(said, ("g",), ts.Turn, 0.0, on_loss="raise").request.kill
    assert options.asking(said, ("g",), ts.Turn, 0.0, on_progress=print).on_progress is print


@pytest.mark.parametrize("name", ["TIMESLICE_ON_LOSS", "TIMESLICE_PROGRESS", "TIMESLICE_DISABLED"])
def test_a_word_that_is_not_known_is_refused(name: str) -> None:
    with pytest.raises(ts.BadRequest, match=name):
        settings.load("h:1", environ={name: "perhaps"})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_progress_is_one_line_that_goes_away() -> None:
    stream = Terminal()
    line = ProgressLine(stream)
    line(ts.Queued("g", 12))
    line(ts.Switching("g", "PREPARING", 7, 2, 1))
    line.done()
    texts = [text.rstrip() for text in stream.getvalue().split("\r")]
    assert texts == [
        "", "waiting for g: place 12", "waiting for g: preparing 1/2 nodes (epoch 7)", "", ""
    ]  # fmt: skip


def test_elsewhere_progress_is_a_line_for_each_piece_of_news() -> None:
    stream = io.StringIO()
    line = ProgressLine(stream)
    line(ts.Queued("g", 2))
    line.done()
    assert stream.getvalue() == "waiting for g: place 2\n"


def test_disabled_a_script_runs_without_anybody() -> None:
    program = (
        "import asyncio, sys, tsclient as ts, tsclient.aio as aio\n"
        "with ts.accelerators('g', 'h', timeout=1) as turn:\n"
        "    turn.check()\n"
        "    print(turn.tokens['h'], turn.lost)\n"
        "@ts.accelerators('g')\n"
        "def work(): return 'worked'\n"
        "print(work())\n"
        "async def main():\n"
        "    async with aio.accelerators('g') as turn: turn.check()\n"
        "    print(await (await aio.acquire('g')).yield_())\n"
        "asyncio.run(main())\n"
        "ts.acquire('g').yield_()\n"
        "print(ts.close(), 'grpc' in sys.modules)\n"
    )
    with child(program, [], TIMESLICE_DISABLED="1", TIMESLICE_JOB_ID="") as process:
        status, out, err = process.rest()
    assert (status, out.split(), err) == (0, ["0", "False", "worked", "None", "True", "False"], "")
