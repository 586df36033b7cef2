# SPDX-License-Identifier: Apache-2.0
"""Whether a group that does not use a node went on without it: by whole turns in that time."""

from __future__ import annotations

import pytest

from chaos.dev.lines import Line, Yielded
from chaos.elsewhere import Window, stopped

WINDOW = Window(100, 200, "n0")


def turn(asked: int, ended: int) -> Yielded:
    return Yielded(ended, 1, asked, asked + 1, 1, True)


@pytest.mark.parametrize(
    ("lines", "went_on"),
    [
        pytest.param([turn(110, 190)], True, id="asked for and given back within it"),
        pytest.param([turn(90, 110), turn(120, 140), turn(190, 210)], True, id="one of several"),
        pytest.param([turn(90, 190)], False, id="asked for before"),
        pytest.param([turn(110, 210)], False, id="given back after"),
        pytest.param([], False, id="none"),
    ],
)
def test_a_whole_turn_within_the_window_shows_that_a_job_went_on(lines: list[Line], went_on: bool) -> None:
    found = list(stopped(WINDOW, {"a": lines, "b": [turn(110, 120)]}))
    assert [one.what.split()[0] for one in found] == ([] if went_on else ["a"])
